"""What the names in expressions and mappings stand for at a point of a record's way: columns of the stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.config.model.source import METADATA_FIELDS, SchemaField
from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.config.stages import without_hidden
from glassflow_dagster.expressions.columns.compile import BATCH_TIME
from glassflow_dagster.expressions.columns.outputs import FIELD_TYPES
from glassflow_dagster.streaming.stages.source_index import FIELDS

# A text is a text; a time is seconds with a fraction, like a field that carries one (microseconds stay exact).
_METADATA_CASTS = {
    "_topic": "string",
    "_key": "string",
    "_timestamp": "double",
    "_batch_time": "double",
    "_partition": "bigint",
    "_offset": "bigint",
}


@dataclass(frozen=True)
class Scope:
    """The kind and the column of each name.

    columns: STRING, LONG, DECIMAL(20,0), DOUBLE or BOOLEAN by kind; array, map and any as their JSON text.
    Expressions may use all of `visible`, the mapping only `mappable`. `visible` also has what now() gives. `metadata`
    are the names that stay, whatever a transform makes.
    """

    kinds: Mapping[str, FieldKind]
    visible: Mapping[str, Column]
    mappable: Mapping[str, Column]
    metadata: Mapping[str, Column]

    def after(self, made: Mapping[str, FieldKind], columns: Mapping[str, Column]) -> "Scope":
        """Give the names behind a stateless transform: what it made stands alone for the mapping."""
        return Scope(
            kinds={**without_hidden(self.kinds, list(made)), **made},
            visible={**without_hidden(self.visible, list(made)), **columns, BATCH_TIME: self.visible[BATCH_TIME]},
            mappable={**self.metadata, **columns},
            metadata=self.metadata,
        )


def carrier(kind: FieldKind) -> str:
    """Give Spark's type of a name's column; a value of any kind is its JSON text."""
    return "string" if kind == "any" else FIELD_TYPES[kind]


def field_scope(fields: Sequence[SchemaField], source: int = 0) -> Scope:
    """Give the names of a decoded record: its fields, and Kafka's own; a declared field hides Kafka's of its name.

    Columns in: those of `read_topics`, and the source's of `decode`.
    """
    columns = {**_metadata(), **{field.name: _field(field, FIELDS[source]) for field in fields}}
    kinds = {**METADATA_FIELDS, **{field.name: field.kind for field in fields}}
    return Scope(kinds, {**columns, BATCH_TIME: F.col("batch_time")}, columns, _metadata())


def joined_scope(kinds: Mapping[str, FieldKind], columns: Mapping[str, Column]) -> Scope:
    """Give the names of a joined event: its output fields, and the time of the batch that it is written in.

    Column in: batch_time TIMESTAMP.
    """
    own = {"_batch_time": _metadata()["_batch_time"]}
    every = {**own, **columns}
    every_kind = {"_batch_time": METADATA_FIELDS["_batch_time"], **kinds}
    return Scope(every_kind, {**every, BATCH_TIME: F.col("batch_time")}, every, own)


def _field(field: SchemaField, fields: str) -> Column:
    column = F.col(fields).getField(field.name)
    if field.default is None:
        return column
    return F.coalesce(column, F.lit(field.default).cast(carrier(field.kind)))


def _metadata() -> dict[str, Column]:
    return {name: F.col(name.removeprefix("_")).cast(cast) for name, cast in _METADATA_CASTS.items()}
