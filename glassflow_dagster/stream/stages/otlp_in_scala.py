"""OTLP in Scala (scala/otlp/OtlpSplitter.scala): splits a record, an export request, into its events, one row each.

An event's position is that of its record and its `item`, the index in the request. Beside its events each record has a
row that stands for the record, by which records are counted: it is dropped at once, as `columns.RECORD`.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.otlp import attribute_path
from glassflow_dagster.definition.model.source import SchemaField, Source
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stores.kafka.replay_headers import ORIGIN_ITEM
from glassflow_dagster.stream.stages.error_column import error_of, set_error
from glassflow_dagster.stream.stages.replays import has_replay_header
from glassflow_dagster.stream.stages.source_index import ONLY_FIELDS

# The columns that the splitter adds, and `keep_outcomes` removes.
_OUTCOMES = ("split_drop_reason", "split_error")


def split_requests(records: DataFrame, source: Source, replay_topic: str) -> DataFrame:
    """Split each record into its events, and a row that stands for the record; see scala/otlp/OtlpSplitter.scala.

    Columns in: value, topic, headers, and any others, which pass unchanged. Columns changed: value BINARY, of an event
    a JSON object. Columns added: item INT (the event's index; -1 for a record's own value, where it is not split),
    split_size INT (`columns.RECORD_SIZE`), and those that `keep_outcomes` takes.
    """
    spec = json.dumps({"signal": source.signal, "format": source.format})
    # A dead letter that was one event is replayed as that event.
    is_event = (F.col("topic") == F.lit(replay_topic)) & has_replay_header(ORIGIN_ITEM)
    others = [name for name in records.columns if name != "value"]
    return records.select(*others, F.inline(F.call_function("glassflow_split_otlp", "value", is_event, F.lit(spec))))


def keep_outcomes(events: DataFrame) -> DataFrame:
    """Set error and drop reason of the rows that the splitter has decided on, which are no good events.

    Columns in: those of `split_requests` and `decode`. Columns changed: error (the splitter's; NULL for a row that it
    drops), drop_reason. Columns removed: the splitter's, except item and split_size.
    """
    dropped, problem = (F.col(name) for name in _OUTCOMES)
    error = F.when(problem.isNotNull(), error_of("decode", problem)).when(dropped.isNull(), F.col("error"))
    return (
        events.withColumn("error", error)
        .withColumn("drop_reason", F.coalesce(dropped, F.col("drop_reason")))
        .drop(*_OUTCOMES)
    )


def fill_attributes_of_key(events: DataFrame, dedup: DedupConfig) -> DataFrame:
    """Set attributes of a key that an event does not have to an empty text, which is what their columns get, too.

    Columns in: the decoded fields. Column changed: these.
    """
    fields = F.col(ONLY_FIELDS)
    attributes = [name for name in dedup.key_fields if len(attribute_path(name)) > 1]
    for name in attributes:
        fields = fields.withField(f"`{name}`", F.coalesce(F.col(ONLY_FIELDS).getField(name), F.lit("")))
    return events.withColumn(ONLY_FIELDS, fields) if attributes else events


def require_key(events: DataFrame, dedup: DedupConfig, fields: Sequence[SchemaField]) -> DataFrame:
    """Refuse an event whose key is empty, as its fields are not set: events without a key are not each other's copies.

    An event has a text for each field of the type string, an empty one where OpenTelemetry's field is not set.
    fields: the source's. Columns in: the decoded fields, error, drop_reason. Column changed: error.
    """
    kinds = {field.name: field.kind for field in fields}
    if any(kinds[name] != "string" for name in dedup.key_fields):
        return events
    is_empty: Column = F.lit(1).cast("boolean")
    for name in dedup.key_fields:
        is_empty &= F.col(ONLY_FIELDS).getField(name) == F.lit("")
    reason = f"the key is empty ({', '.join(dedup.key_fields)})"
    return set_error(events, "decode", F.when(is_empty, F.lit(reason)))
