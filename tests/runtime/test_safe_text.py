"""Text of records where people read it: in a terminal, a log, Dagster's Markdown and Slack."""

import json
from pathlib import Path

import pytest

from glassflow_dagster import cli
from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.runtime.safe_text import (
    code,
    code_block,
    from_markdown,
    json_text,
    log_entry,
    markdown,
    one_line,
    printable,
    slack_text,
)

NASTY = "a\n\x1b[2J\x9b1m\u202eb\u2028\x7f"


def test_a_part_of_a_line_has_no_line_end_and_no_escape_sequence() -> None:
    assert one_line(NASTY) == r"a\n\x1b[2J\x9b1m\u202eb\u2028\x7f"
    assert one_line("größe 日本 \xa0\\n") == "größe 日本 \xa0\\n"
    assert one_line("\ud800") == r"\ud800"


def test_a_terminal_gets_lines_and_tabs_and_a_log_indents_them() -> None:
    assert printable("1\n\t2\x1b[31m\r") == "1\n\t2\\x1b[31m\\r"
    assert printable(printable(NASTY)) == printable(NASTY)
    assert log_entry("failed: a\n2026-01-01 00:00:00 batch 7") == "failed: a\n  2026-01-01 00:00:00 batch 7"


def test_json_for_a_terminal_stays_json() -> None:
    text = json_text({NASTY: ["é", 1]}, indent=2)
    assert json.loads(text) == {NASTY: ["é", 1]}
    assert printable(text) == text
    assert "é" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[look](http://x) ![i](http://y)", r"[look]\(http://x) ![i]\(http://y)"),
        ("<img src=x>", r"\<img src=x>"),
        ("# big\n- a\n3. b\n> c\n```\nd", "\\# big  \n\\- a  \n3\\. b  \n\\> c  \n\\```  \nd"),
        ("field \x1b[1m", r"field \x1b[1m"),
        ("sink.mapping[2]: a_b of 3.5 rows", "sink.mapping[2]: a_b of 3.5 rows"),
    ],
)
def test_markdown_shows_the_text_and_nothing_else(text: str, shown: str) -> None:
    assert markdown(text) == shown
    assert from_markdown(shown) == printable(text)


def test_code_cannot_be_ended_from_within() -> None:
    assert code("a") == "`a`"
    assert code("a``b\n") == "```a``b\\n```"
    assert code("`a") == "`` `a ``"
    assert code_block("a\n````\nb\x1b") == "`````\na\n````\nb\\x1b\n`````"


def test_slack_mentions_nobody() -> None:
    assert slack_text("a <!channel> & <http://x|y>") == "a &lt;!channel&gt; &amp; &lt;http://x|y&gt;"


def test_every_result_of_a_command_is_printed_by_the_functions_that_escape_it() -> None:
    """But for YAML and metrics, whose formats have escapes of their own."""
    raw = {file.name for file in Path(cli.__file__).parent.glob("*.py") if "click.echo(" in file.read_text()}
    assert raw == {"options.py", "definitions.py", "infer.py", "metrics.py"}


def test_each_problem_of_a_definition_is_one_line() -> None:
    error = DefinitionError(None, [Problem("a\nb", "is\x1b[1m wrong"), Problem("", "c")])
    assert str(error).splitlines() == [r"pipeline definition: a\nb: is\x1b[1m wrong", "pipeline definition: c"]
