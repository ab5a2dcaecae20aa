"""What the documentation says of names, against the code that has them."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from glassflow_dagster.cli import main
from glassflow_dagster.clickhouse.ddl import DEAD_LETTER_COLUMNS, LEDGER_COLUMNS
from glassflow_dagster.config import model
from glassflow_dagster.config.load import load_pipeline, warnings
from glassflow_dagster.config.types import FIELD_KINDS

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def words(page: str) -> set[str]:
    """Give all words that a page writes as code within its sentences and tables."""
    text = re.sub(r"```.*?```", "", (PROJECT / page).read_text(), flags=re.DOTALL)
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}


def test_the_definition_in_the_readme_is_valid(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "sms_status.yaml"
    file.write_text(text)
    config = load_pipeline(file, {})
    assert config.pipeline_id == file.stem
    assert warnings(config) == []


def test_the_readme_has_every_command_and_no_other() -> None:
    listed = re.findall(r"^\| `([\w-]+)", (PROJECT / "README.md").read_text(), re.MULTILINE)
    checks = {"counts_agree", "dead_letters", "no_residual_duplicates", "stream_is_live", "unmatched_share"}
    assert sorted(set(listed) - checks) == sorted(main.commands)
    for group in ("stack", "dead-letters"):
        found = main.commands[group]
        assert isinstance(found, click.Group)
        assert set(found.commands) <= words("README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def parts() -> Iterator[type[BaseModel]]:
    for found in vars(model).values():
        if isinstance(found, type) and issubclass(found, BaseModel) and found.__module__ == model.__name__:
            yield found


def test_the_page_on_definitions_names_every_key_and_type() -> None:
    keys = {name for part in parts() for name in part.model_fields}
    known = words("docs/definition.md")
    assert keys - known == set()
    assert set(model.METADATA_FIELDS) - known == set()
    # The widths between the first and the last of a row are left out.
    assert {name for name in FIELD_KINDS if not re.search(r"int(16|32)$", name)} - known == set()


def test_the_books_columns_are_described() -> None:
    assert set(DEAD_LETTER_COLUMNS) - words("docs/definition.md") == set()
    assert set(LEDGER_COLUMNS) - words("docs/guarantees.md") == set()


def test_every_variable_is_described_and_none_that_the_code_does_not_read() -> None:
    code = "".join(file.read_text() for file in (PROJECT / "glassflow_dagster").rglob("*.py"))
    described = "".join(page.read_text() for page in PAGES)
    variable = re.compile(r"GLASSFLOW_[A-Z_]+[A-Z]")
    assert set(variable.findall(described)) == set(variable.findall(code))
