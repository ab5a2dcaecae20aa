"""The columns that identify keys and arrival times, without a server."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.checks.duplicates import Search, duplicates_query
from glassflow_dagster.checks.event_time import event_time_column
from glassflow_dagster.checks.keys import key_columns
from glassflow_dagster.checks.row_time import RowTime, arrival_column
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.definition.model.fields import TimeUnit
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.transforms import DedupConfig, Output, Stateless, StatelessConfig
from glassflow_dagster.definition.model.types import parse_column_type
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.table import Column, Table

PIPELINES = Path(__file__).parents[2] / "pipelines"


def described(**columns: str) -> Table:
    parsed = {name: Column(parse_column_type(kind), "", kind) for name, kind in columns.items()}
    return Table("d", "t", "MergeTree", "MergeTree", parsed, rows=0, ttl=False)


def sms(*mapping: tuple[str, str, str], **checks: Any) -> PipelineConfig:
    config = load_pipeline(PIPELINES / "sms_status.yaml", {})
    mapped = [Mapping(name=name, column_name=column, column_type=kind) for name, column, kind in mapping]
    sink = config.sink.model_copy(update={"mapping": tuple(mapped) or config.sink.mapping})
    return config.model_copy(update={"sink": sink, "checks": Checks(**checks)})


def test_a_key_of_several_fields_has_a_column_for_each() -> None:
    config = load_pipeline(PIPELINES / "flights.yaml", {})
    table = described(**{m.column_name: m.column_type for m in config.sink.mapping})
    assert key_columns(config, table) == ("year", "month", "day", "carrier", "flight", "origin")


@pytest.mark.parametrize(
    ("mapping", "columns", "found"),
    [
        ((("sms_id", "id", "String"),), {"id": "LowCardinality(String)"}, ("id",)),
        ((("status", "id", "String"),), {"id": "String"}, None),
        ((("sms_id", "id", "DateTime"),), {"id": "DateTime"}, None),
        ((("sms_id", "seen", "DateTime"), ("sms_id", "id", "UUID")), {"seen": "DateTime", "id": "UUID"}, ("id",)),
    ],
    ids=["mapped", "not mapped", "several texts may be one time", "one of two columns will do"],
)
def test_a_key_needs_columns_that_keep_its_values_apart(
    mapping: tuple[tuple[str, str, str], ...], columns: dict[str, str], found: tuple[str, ...] | None
) -> None:
    assert key_columns(sms(*mapping), described(**columns)) == found


@pytest.mark.parametrize(
    ("outputs", "mapped", "found"),
    [
        ([("id", "sms_id", "string")], "id", ("c",)),
        ([("sms_id", "sms_id", "string")], "sms_id", ("c",)),
        ([("sms_id", "lower(sms_id)", "string")], "sms_id", None),
        ([("sms_id", "status", "string"), ("id", "sms_id", "")], "sms_id", None),
        ([("sms_id", "toInt(sms_id)", "int")], "sms_id", None),
        ([("key", "sms_id", "")], "key", ("c",)),
        ([], "sms_id", ("c",)),
    ],
    ids=[
        "renamed",
        "passed on",
        "changed under its name",
        "another field under its name",
        "converted",
        "as it is",
        "nothing",
    ],
)
def test_behind_a_transform_a_key_is_the_output_that_passes_it_on(
    outputs: list[tuple[str, str, str]], mapped: str, found: tuple[str, ...] | None
) -> None:
    config = sms((mapped, "c", "String"))
    made = tuple(Output(output_name=name, expression=text, output_type=kind) for name, text, kind in outputs)
    transform = Stateless(type="stateless", source_id=config.source.source_id, config=StatelessConfig(transforms=made))
    config = config.model_copy(update={"transforms": (*config.transforms, transform)})
    assert key_columns(config, described(c="String")) == found


@pytest.mark.parametrize(
    ("mapping", "columns", "found"),
    [
        ((), {"ingested_at": "DateTime"}, RowTime("ingested_at", is_clock=False, resolution_ms=1000)),
        ((), {"ingested_at": "String"}, None),
        ((), {"came": "DateTime"}, None),
        (
            (("_batch_time", "came", "DateTime64(3)"),),
            {"ingested_at": "DateTime", "came": "DateTime64(3)"},
            RowTime("came", is_clock=True, resolution_ms=0),
        ),
    ],
)
def test_arrival_is_the_batch_time_or_the_usual_column(
    mapping: tuple[tuple[str, str, str], ...], columns: dict[str, str], found: RowTime | None
) -> None:
    assert arrival_column(sms(*mapping), described(**columns)) == found


def test_the_definition_names_the_arrival_column_and_is_corrected_when_there_is_none() -> None:
    table = described(came="DateTime64(1)", ingested_at="DateTime")
    found = arrival_column(sms(arrival_column="came"), table)
    assert found == RowTime("came", is_clock=False, resolution_ms=100)
    with pytest.raises(TableProblem, match=r"checks\.arrival_column: .* did you mean 'came'"):
        arrival_column(sms(arrival_column="cane"), table)


def test_the_batch_time_itself_needs_no_ledger() -> None:
    search = Search(
        table=described(id="String"),
        key="tuple(`id`)",
        window_ms=round(timedelta(minutes=5) / timedelta(milliseconds=1)),
        time=RowTime("came", is_clock=True, resolution_ms=0),
        ledger="`d`.`glassflow_ledger`",
        pipeline_id="it's",
    )
    assert "glassflow_ledger" not in duplicates_query(search, final=False)
    assert "FROM `d`.`t` FINAL WHERE" in duplicates_query(search, final=True)


@pytest.mark.parametrize(
    ("mapping", "unit", "found"),
    [
        (("updated_at", "at", "DateTime"), None, RowTime("at", is_clock=True, resolution_ms=1000)),
        (("updated_at", "at", "Int64"), "ms", RowTime("at", is_clock=True, resolution_ms=0, unit="ms")),
        (("updated_at", "at", "DateTime64(3)"), "ms", None),
        (("updated_at", "at", "String"), None, None),
        (("status", "at", "DateTime"), None, None),
    ],
    ids=["seconds", "a number", "a number that is not in seconds", "texts", "another field"],
)
def test_the_event_time_is_told_by_a_column_that_keeps_it(
    mapping: tuple[str, str, str], unit: TimeUnit | None, found: RowTime | None
) -> None:
    dedup = DedupConfig(key="sms_id", time_window="1h", clock="event", event_time="updated_at", event_time_unit=unit)
    config, table = sms(("sms_id", "id", "String"), mapping), described(id="String", at=mapping[2])
    assert event_time_column(config, dedup, table) == found
    output = Output(expression="upper(status)", output_name="updated_at")
    made = Stateless(type="stateless", source_id="sms", config=StatelessConfig(transforms=(output,)))
    behind = config.model_copy(update={"transforms": (*config.transforms, made)})
    assert event_time_column(behind, dedup, table) is None


def test_times_are_compared_in_milliseconds_whatever_a_column_counts() -> None:
    named = {unit: RowTime("at", is_clock=True, resolution_ms=0, unit=unit).milliseconds for unit in ("s", "us", "ns")}
    assert named == {
        "s": "toInt64(`at`) * 1000", "us": "intDiv(toInt64(`at`), 1000)", "ns": "intDiv(toInt64(`at`), 1000000)",
    }  # fmt: skip
    assert RowTime("at", is_clock=True, resolution_ms=0).since(60) == "`at` >= now() - 60"
    since = RowTime("at", is_clock=True, resolution_ms=0, unit="ms").since(60)
    assert since == "toInt64(`at`) >= (toUnixTimestamp(now()) - 60) * 1000"
