"""The proposed definition: it is valid, and its comments describe the sampled events."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.definition import pipeline_name
from glassflow_dagster.inference.fields import collect_fields
from glassflow_dagster.inference.formats import read_events
from glassflow_dagster.inference.proposal_text import propose
from glassflow_dagster.inference.servers import Connections
from glassflow_dagster.inference.topic_sample import SampledTopic
from glassflow_dagster.stores.kafka.records import Record

SERVERS = Connections(
    {"brokers": ["127.0.0.1:9092"]},
    {"host": "127.0.0.1", "port": 8123, "database": "default", "username": "default", "password": ""},
)
# Names with characters that are special in YAML, SQL or comments.
NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from([
        "id", "a.b", "null", "yes", "1", "1e3", "-", "?", "#x", "{}", "[]", ":", "'", '"', "`", "\\", "\n", "\r\n",
        "\t", "\x00", "\x85", "\u2028", "ünï", "select", "ID", "_key", "_batch_time", "ingested_at", "a_b", "${X}",
        "%d", "!x", "&x", "*x", "@x", "|", ">", "a: b", "a #b",
    ]),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5), st.sampled_from(["2024-10-28", "2024-10-28T10:00:05Z"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
EVENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=6)


def values_of(events: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def proposal(values: list[bytes | None], topic: str = "orders", **changes: Any) -> str:
    events = read_events([Record(topic, 0, 0, None, None, value, ()) for value in values], None, print)
    return propose(SampledTopic(topic, changes.pop("about", len(values)), 1), events, SERVERS, **changes)


def loaded(text: str) -> PipelineConfig:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proposed.yaml"
        file.write_text(text, encoding="utf-8")
        return load_pipeline(file, {})


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_whatever_the_events_are_the_definition_is_valid_and_names_their_fields(events: list[dict[str, Any]]) -> None:
    fields = collect_fields(events).declared
    if not fields:
        with pytest.raises(GlassflowError, match=r"none of the .* has a field that a definition can name"):
            proposal(list(values_of(events)))
        return
    config = loaded(proposal(list(values_of(events))))
    assert [field.name for field in config.source.schema_fields] == [field.name for field in fields]
    assert [mapping.name for mapping in config.sink.mapping][: len(fields)] == [field.name for field in fields]


ORDERS = [
    {
        "order_id": number,
        "user": {"name": "n"} if number % 10 else None,
        "state": "new" if number % 2 else "paid",
        "at": "2024-10-28T10:00:05Z",
        "mixed": "x" if number == 3 else number,
    }
    for number in range(100)
]


def test_the_definition_says_what_was_seen() -> None:
    values: list[bytes | None] = [*values_of(ORDERS), *values_of(ORDERS[:5]), b"x", None]
    assert (
        proposal(values, about=5000)
        == """\
# Proposed for topic orders after reading 107 of about 5,000 messages (1 partition, from the beginning and the
# end of each).
# 105 of them are JSON objects. The rest become dead letters: 1 not JSON, 1 without a value.
# Review it: a field that was always present may be missing in messages that were not read; such a message
# becomes a dead letter, unless the field has required: false.
version: v3
pipeline_id: orders
sources:
  - type: kafka
    source_id: orders
    connection_params:
      brokers: ['127.0.0.1:9092']
    topic: orders
    schema_fields:
      - {name: order_id, type: int}
      - {name: state, type: string}
      - {name: at, type: string}
      - {name: mixed, type: int}                          # 103 number, 2 string: 2 become dead letters
      - {name: user.name, type: string, required: false}  # 11 missing of 105
transforms:
  # The first event of each order_id is kept: 100 values in 105 events; 5 repeats, all of them copies of an
  # earlier event.
  - type: dedup
    source_id: orders
    config: {key: order_id, time_window: 1h}  # the window: how long a producer may take to send an event again
sink:
  type: clickhouse
  connection_params:
    host: 127.0.0.1
    port: 8123
    database: default
    username: default
    password: ''
  table: orders
  max_batch_size: 10000  # rows of one insert at most
  max_delay_time: 1s  # a smaller batch is inserted after this time
  mapping:
    - {name: order_id, column_name: order_id, column_type: Int64}
    - {name: state, column_name: state, column_type: LowCardinality(String)}      # 2 different values
    - {name: at, column_name: at, column_type: DateTime64(3)}
    - {name: mixed, column_name: mixed, column_type: Int64}
    - {name: user.name, column_name: user_name, column_type: LowCardinality(Nullable(String))}  # 1 different value
    - {name: _batch_time, column_name: ingested_at, column_type: DateTime64(3)}   # time of the batch
  create_table:  # used if the table does not exist
    engine: MergeTree
    order_by: order_id  # what queries select by; cannot be changed later
"""
    )


def test_without_a_key_every_event_is_written_and_the_time_orders_the_rows() -> None:
    events = [{"customer_id": number % 3, "n": number, "at": "2024-10-28T10:00:05Z"} for number in range(9)]
    text = proposal(list(values_of(events)))
    assert "# customer_id is shared by different events: 3 values in 9 events; 6 repeats, 6 of them in" in text
    config = loaded(text)
    assert (config.dedup, config.sink.create_table and config.sink.create_table.order_by) == (None, "at")
    # The proposed alternatives in comments are valid once the field is named.
    offered = text.replace("# transforms:", "transforms:").replace("#   - type", "  - type").replace("#     ", "    ")
    dedup = loaded(offered.replace("FIELD", "n")).dedup
    assert dedup is not None
    assert dedup.key == "n"


def test_messages_with_a_schemas_id_get_a_registry_and_say_what_is_required() -> None:
    values = [b"\x00\x00\x00\x00\x07" + value for value in values_of([{"id": 1, "x": 1}, {"id": 2}])]
    source = loaded(proposal(list(values))).source
    assert source.schema_registry is not None
    assert [(field.name, field.required) for field in source.fields] == [("id", True), ("x", False)]


def test_columns_have_names_of_their_own_and_quotes_where_sql_needs_them() -> None:
    text = proposal(list(values_of([{"group": {"id": 1}, "group_id": 2, "ingested_at": 3, "ünï": 1}])), "group")
    config = loaded(text)
    columns = [mapping.column_name for mapping in config.sink.mapping]
    assert columns == ["group_id", "group_id_2", "ingested_at", "ünï", "ingested_at_2"]
    [key] = loaded(proposal(list(values_of([{"ünï_id": 1}])))).sink.mapping[:1]
    assert key.column_name == "ünï_id"
    assert "order_by: '`ünï_id`'" in proposal(list(values_of([{"ünï_id": 1}])))


@pytest.mark.parametrize(
    ("topic", "name"),
    [("orders", "orders"), ("iot", "iot_events"), ("a.b-c_d", "a_b-c_d"), ("-x", "x_events"), ("t" * 249, "t" * 100)],
)
def test_the_pipeline_is_named_after_its_topic(topic: str, name: str) -> None:
    assert pipeline_name(topic) == name
    assert loaded(proposal([b'{"a": 1}'], topic)).pipeline_id == name
    assert loaded(proposal([b'{"a": 1}'], topic, pipeline_id="another")).pipeline_id == "another"


def test_messages_that_are_no_objects_are_an_error_with_what_they_are() -> None:
    with pytest.raises(GlassflowError, match=r"none of the 3 messages read is a JSON object \(2 not JSON, 1 without"):
        proposal([b"x", b"y", None])
    with pytest.raises(
        GlassflowError,
        match="of Avro or Protobuf, name the registry: --schema-registry URL",
    ):
        proposal([b"\x00\x00\x00\x00\x01\x02"])
