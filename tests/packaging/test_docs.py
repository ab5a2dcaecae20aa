"""The documentation agrees with the code, and its pages can be built."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline, warnings
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.model.types import COLUMN_TYPES, FIELD_KINDS, NEVER_FILLED
from glassflow_dagster.orchestration import checks

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
TUTORIALS = {"sms.md": "sms_status", "flights.md": "flights", "orders.md": "orders_with_users"}


def words(page: Path) -> set[str]:
    """Return all words in code spans of a page's text and tables."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}


def definitions(page: Path) -> list[str]:
    """Return the YAML definitions in a page's code blocks."""
    return re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in the checkout, with the checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_pages_can_be_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    # Without --quiet, which hides the warnings that --strict counts.
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("link", ["missing.md", "index.md#missing"])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n[a link]({link})\n")
    config = {"INHERIT": str(PROJECT / "mkdocs.yml"), "site_dir": "site", "nav": ["index.md"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    done = run("-m", "mkdocs", "build", "--strict", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1
    assert link in done.stderr


def test_the_reference_is_what_the_code_says() -> None:
    done = run(".ci/reference.py", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_fits_on_a_few_screens_with_a_short_pipeline(tmp_path: Path) -> None:
    readme = PROJECT / "README.md"
    assert len(readme.read_text().splitlines()) <= 130
    [text] = definitions(readme)
    assert len(text.splitlines()) <= 25
    file = tmp_path / "invoices.yaml"
    file.write_text(text)
    config = load_pipeline(file, {})
    assert config.pipeline_id == file.stem
    assert warnings(config) == []


def test_the_definition_of_the_own_topic_is_right(tmp_path: Path) -> None:
    file = tmp_path / "payments.yaml"
    file.write_text(definitions(DOCS / "tutorials" / "own-topic.md")[0])
    assert load_pipeline(file, {}).pipeline_id == file.stem


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_that_is_no_reference_has_at_most_eight_screens(page: Path) -> None:
    words_of_a_screen = 450
    assert page.parent.name == "reference" or len(page.read_text().split()) <= 8 * words_of_a_screen


def test_contributing_names_files_that_exist() -> None:
    page = (PROJECT / "CONTRIBUTING.md").read_text()
    recipes = page[page.index("## Recipes") : page.index("## Upgrades")]
    rows = re.findall(r"^\| (`.*?) \|", recipes, re.MULTILINE)
    named = {path for row in rows for path in re.findall(r"`([^`]+)`", row) if not re.search(r"NAME|<name>", path)}
    assert len(named) > 40
    assert [p for p in named if not (PROJECT / p).exists() and not (PROJECT / "glassflow_dagster" / p).exists()] == []


def excerpts() -> Iterator[tuple[str, Any]]:
    for page, pipeline in TUTORIALS.items():
        for text in definitions(DOCS / "tutorials" / page):
            if isinstance(found := yaml.safe_load(text), dict):
                yield pipeline, found


@pytest.mark.parametrize(("pipeline", "excerpt"), list(excerpts()))
def test_a_tutorial_quotes_the_shipped_definition(pipeline: str, excerpt: Any) -> None:
    assert is_part(excerpt, yaml.safe_load((PROJECT / "pipelines" / f"{pipeline}.yaml").read_text()))


def is_part(part: Any, whole: Any) -> bool:
    """Return whether `part` occurs in `whole`: keys of a mapping with their values, items of a list in order."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(is_part(item, other) for other in whole) for item in part)
    return bool(part == whole)


def test_the_page_on_types_names_every_type_and_the_metadata_of_kafka() -> None:
    known = words(DOCS / "reference" / "types.md")
    assert set(METADATA_FIELDS) - known == set()
    # Integer widths between the first and the last of a row are omitted from the page.
    assert {name for name in FIELD_KINDS if not re.search(r"int(16|32)$", name)} - known == set()
    columns = {name for name in COLUMN_TYPES if not re.search(r"(Int(16|32)|Decimal(64|128))$", name)}
    assert {*columns, *NEVER_FILLED} - known == set()


def test_the_page_on_checks_names_every_check() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]", (DOCS / "reference" / "checks.md").read_text(), re.MULTILINE)
    assert set(listed) == {*checks.ALL_CHECKS, "keys_agree"}


def test_no_page_names_a_variable_that_the_code_does_not_read() -> None:
    variable = re.compile(r"GLASSFLOW_[A-Z_]+[A-Z]")
    code = "".join(file.read_text() for file in (PROJECT / "glassflow_dagster").rglob("*.py"))
    others = (PROJECT / "Makefile", *PROJECT.glob("tests/**/*.py"), *PROJECT.glob("benchmarks/**/*.py"))
    tests = "".join(file.read_text() for file in others)
    described = "".join(page.read_text() for page in PAGES)
    assert set(variable.findall(described)) - set(variable.findall(code)) - set(variable.findall(tests)) == set()


def test_the_changelog_has_an_entry_for_the_version() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    entries = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert entries[0] == version
