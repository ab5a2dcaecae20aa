"""docs/reference/python.md describes the public API: every name, every parameter, and examples that fit the code."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import glassflow_dagster

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text()
# Heading of a name -> the text below it.
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# Models with a page of their own, and what has no parameters of its own.
DESCRIBED_ELSEWHERE = {"GlassflowError", "PipelineConfig", "PipelineFolder"}


def imported(code: str) -> list[tuple[str, str | None]]:
    """Return the modules that a piece of code imports, with the name from each, if it imports one."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def test_every_public_name_has_a_heading_and_no_other_one() -> None:
    assert set(SECTIONS) == set(glassflow_dagster.__all__)


@pytest.mark.parametrize("name", sorted(set(glassflow_dagster.__all__) - DESCRIBED_ELSEWHERE))
def test_every_parameter_is_described(name: str) -> None:
    parameters = inspect.signature(getattr(glassflow_dagster, name)).parameters
    assert set(parameters) - set(re.findall(r"\w+", SECTIONS[name])) == set()


def test_every_example_compiles_and_imports_only_what_exists() -> None:
    assert len(EXAMPLES) >= 4
    for code in EXAMPLES:
        compile(code, "python.md", "exec")
        for module, name in imported(code):
            assert name is None or hasattr(importlib.import_module(module), name), f"{module} has no {name}"
