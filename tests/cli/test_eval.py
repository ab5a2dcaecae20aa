"""The command `eval`: arguments, exit codes and output."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from glassflow_dagster.cli import main
from glassflow_dagster.stream import evaluate
from tests.servers.registry import Registry, serving

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
    (["a", "--sample", "{}", "--schema", "a.proto", "--from", str(PIPELINE)], 2, "--schema or with --from, not with"),
    (["a", "--sample", "{}", "--encoded"], 2, "--encoded needs the format of a definition"),
    (["a", "--sample", "{}", "--message-type", "A"], 2, "--message-type and --with-schema-id apply to --schema"),
    (["a", "--sample", "{}", "--schema", "/no/such.proto"], 1, "/no/such.proto: No such file or directory; name a"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG)
def test_what_cannot_be_tried_is_told_with_its_remedy(arguments: list[str], code: int, words: str) -> None:
    found = CliRunner().invoke(main, ["eval", *arguments])
    assert found.exit_code == code
    assert words in found.output
    assert "starting Spark" not in found.output


PROTO = """
syntax = "proto3";
message Other { string name = 1; }
message Order { string id = 1; uint64 n = 2; optional Part part = 3; message Part { string city = 1; } }
"""
AVRO = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "n", "type": ["int", "string"]}, {"name": "raw", "type": "bytes"},
]}  # fmt: skip
ORDER = b"\x0a\1a\x10\5\x1a\5\x0a\3Ulm"


@pytest.mark.parametrize(
    ("text", "name", "value", "arguments", "shown"),
    [
        (PROTO, "a.proto", ORDER, ("upper(part.city)", "--message-type", "Order"), '"ULM" (string)'),
        # The schema id is followed by the index of the message.
        (PROTO, "a.proto", b"\0\0\0\0\7\2\2" + ORDER, ("n + 1", "--with-schema-id"), "6 (int)"),
        (PROTO, "a.proto", ORDER, ("n > 1", "--filter", "--fields", "n:int", "--message-type", "Order"), "true: "),
        (PROTO, "a.proto", ORDER + b"\7", ("n", "--fields", "n:int"), "dead letter: decode: invalid Protobuf"),
        (json.dumps(AVRO), "a.avsc", b"\2a\0\4\2x", ("n + 1",), "3 (int)"),
        (json.dumps(AVRO), "a.avsc", b"\1" + bytes(16) + b"\2a\0\4\2x", ("raw", "--with-schema-id"), '"eA==" (string)'),
    ],
)  # fmt: skip
def test_a_sample_may_be_encoded_with_a_schema(
    text: str, name: str, value: bytes, arguments: tuple[str, ...], shown: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The fields are those of the schema, or declared."""
    (tmp_path / name).write_text(text)
    (tmp_path / "sample").write_bytes(value)
    options = ["--schema", str(tmp_path / name), "--sample", f"@{tmp_path / 'sample'}"]
    found = evaluated(spark, *arguments, *options)
    assert found.output.splitlines()[-1].startswith(shown), found.output
    assert found.exit_code == (1 if "dead letter" in shown else 0)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\x0a\7", "the sample is no record of the schema (1 not decoded (invalid Protobuf"),
        (b"\7", "correct it, or declare the --fields"),
    ],
)
def test_a_sample_that_the_schema_does_not_fit_has_no_fields(value: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text(PROTO)
    (tmp_path / "sample").write_bytes(value)
    arguments = ["n", "--schema", str(tmp_path / "a.proto"), "--sample", f"@{tmp_path / 'sample'}"]
    found = CliRunner().invoke(main, ["eval", *arguments])
    assert (found.exit_code, problem in found.output) == (1, True), found.output
    (tmp_path / "a.proto").write_text("message {")
    found = CliRunner().invoke(main, ["eval", *arguments])
    assert (found.exit_code, "schema.file is no .proto file" in found.output) == (1, True), found.output


def definition(folder: Path, source: dict[str, Any]) -> Path:
    file = folder / "orders.yaml"
    raw = yaml.safe_load(PIPELINE.read_text())
    fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]
    raw["sources"] = [{**raw["sources"][0], "schema_fields": fields, **source}]
    raw["transforms"] = []
    raw["sink"]["mapping"] = [{"name": "id", "column_name": "id", "column_type": "String"}]
    raw["sink"].pop("create_table", None)
    raw.pop("checks", None)
    file.write_text(yaml.safe_dump(raw))
    return file


def test_a_sample_may_be_a_record_of_a_definition(tmp_path: Path, spark: SparkSession) -> None:
    """With its registry, which may know the schema's id or not, or be away."""
    with serving(Registry()) as registry:
        number = registry.register("t", PROTO, kind="PROTOBUF")
        start = b"\0" + number.to_bytes(4, "big")
        of_registry = {"schema_registry": {"url": registry.url}}
        for source, value, shown in (
            ({"format": "protobuf", **of_registry}, start + b"\2\2" + ORDER, "6 (int)"),
            ({"format": "protobuf", **of_registry}, b"\0\0\0\0\x63" + ORDER,
             "dead letter: decode: the schema registry has no schema with the id 99"),
            ({"format": "protobuf", **of_registry}, ORDER, "dead letter: decode: no schema id"),
            (of_registry, start + b'{"n": 5}', "6 (int)"),
            (of_registry, b'{"n": 5}', "dead letter: decode: no schema id"),
            ({"format": "avro", "schema": {"file": json.dumps(AVRO), "wire_format": "none"}}, b"\2a\0\4\0", "3 (int)"),
        ):  # fmt: skip
            (tmp_path / "sample").write_bytes(value)
            file = definition(tmp_path, source)
            found = evaluated(spark, "n + 1", "--encoded", "--from", str(file), "--sample", f"@{tmp_path / 'sample'}")
            assert found.output.splitlines()[-1].startswith(shown), found.output
    away = {"format": "protobuf", "schema_registry": {"url": "http://127.0.0.1:1"}}
    (tmp_path / "sample").write_bytes(start + b"\0")
    with patch.object(evaluate, "_REGISTRY_SECONDS", 0.1):
        found = evaluated(
            spark, "n", "--encoded", "--from", str(definition(tmp_path, away)), "--sample", f"@{tmp_path / 'sample'}"
        )
    assert (found.exit_code, "schema registry http://127.0.0.1:1" in found.output) == (1, True), found.output


def evaluated(spark: SparkSession, *arguments: str) -> Result:
    """Run the command in a session that is there already."""
    with (
        patch("glassflow_dagster.stream.spark.session.start_session", return_value=spark),
        patch("glassflow_dagster.stream.spark.session.stop_session"),
    ):
        return CliRunner().invoke(main, ["eval", *arguments])


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
