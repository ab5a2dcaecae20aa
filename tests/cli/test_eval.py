"""The command `eval`: arguments, exit codes and output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from glassflow_dagster.cli import main

PIPELINE = Path(__file__).parents[2] / "pipelines" / "sms_status.yaml"

# Arguments, exit code, and words of the output; none of these cases needs Spark.
WRONG: list[tuple[list[str], int, str]] = [
    (["uper(name)", "--sample", '{"name": "a"}'], 1, "unknown function 'uper'; did you mean 'upper'? (column 1)"),
    (["uper(name)", "--sample", '{"name": "a"}'], 1, "\n  uper(name)\n  ^^^^"),
    (["name", "--filter", "--sample", '{"name": "a"}'], 1, "a filter needs true or false, but this is a string"),
    (["name + n", "--sample", '{"name": "a", "n": 1}'], 1, "`+` needs two numbers or two strings"),
    (["statis", "--from", str(PIPELINE), "--sample", "{}"], 1, "unknown field 'statis'; did you mean 'status'?"),
    (["a", "--sample", "{"], 1, "the sample is not a JSON object"),
    (["a", "--sample", "[1]"], 1, "the sample is not a JSON object (but list)"),
    (["a", "--sample", "@/no/such/file"], 1, "/no/such/file: No such file or directory"),
    (["a", "--sample", "-", "--key", "-"], 2, "stdin is one of --sample and --key, not both"),
    (["_key.ids", "--sample", "{}", "--key", '{"id": 1}'], 1, "did you mean '_key.id'?"),
    (["a"], 2, "Missing option '--sample'"),
    (["a", "--sample", "{}", "--fields", "a:strng"], 2, "--fields a:strng: unknown field type 'strng'"),
    (["a", "--sample", "{}", "--fields", "a:int", "--from", str(PIPELINE)], 2, "not with both"),
    (["a", "--sample", "{}", "--filter", "--type", "int"], 2, "a filter is true or false"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG)
def test_what_cannot_be_tried_is_told_with_its_remedy(arguments: list[str], code: int, words: str) -> None:
    found = CliRunner().invoke(main, ["eval", *arguments])
    assert found.exit_code == code
    assert words in found.output
    assert "starting Spark" not in found.output


@pytest.mark.servers
def test_a_value_and_a_dead_letter_are_shown(tmp_path: Path) -> None:
    sample = tmp_path / "sample.json"
    sample.write_text('{"sms_id": "a", "status": "SENT", "updated_at": "now", "n": 9223372036854775808}')
    command = [sys.executable, "-m", "glassflow_dagster", "eval"]
    shown = subprocess.run(
        [*command, "toString(n) + lower(status) + toString(_key.id)", "--json", "--sample", f"@{sample}",
         "--key", '{"id": 17}'],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (shown.returncode, json.loads(shown.stdout)) == (
        0,
        {"value": "9223372036854775808sent17", "type": "string"},
    ), shown.stderr
    refused = subprocess.run(
        [*command, "sms_id == 'a'", "--filter", "--from", str(PIPELINE), "--sample", "-"],
        input='{"sms_id": 1}', capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (
        1,
        "dead letter: decode: field 'sms_id': expected string, got number\n",
    ), refused.stderr
