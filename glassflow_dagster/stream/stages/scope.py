"""The scope of a stage: which column each name in an expression or a mapping refers to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.source import METADATA_FIELDS, SchemaField
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.stages import without_hidden
from glassflow_dagster.stream.stages.source_index import FIELDS

# The key in `Scope.visible` of the result of now(), a TIMESTAMP; the parentheses keep it apart from every field name.
BATCH_TIME = "now()"

# Kind of a field -> Spark type of its column; arrays, objects and values of any kind are JSON text.
FIELD_TYPES: Mapping[FieldKind, str] = {
    "string": "string",
    "int": "bigint",
    "uint": "decimal(20,0)",
    "float": "double",
    "bool": "boolean",
    **dict.fromkeys(("array", "map", "any", "decimal", "bigint", "ubigint"), "string"),
}

# Kafka's metadata as columns, besides its timestamp.
_METADATA_CASTS = {
    "_topic": "string",
    "_key": "string",
    "_batch_time": "double",
    "_partition": "bigint",
    "_offset": "bigint",
}
_MILLISECONDS_PER_SECOND = 1000


@dataclass(frozen=True)
class StructFields:
    """Names whose values are fields of one STRUCT column as they are, and the position of each in it.

    Scala reads these from the column, as Spark's code for 40 columns is slow: Java does not compile a method of that
    length.
    """

    column: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scope:
    """The names that a stage may use, with their kinds and columns.

    kinds: the kind of each name.
    visible: the columns that expressions may use, and the value of now().
    mappable: those that the mapping may use.
    metadata: Kafka's metadata (`_topic`, `_offset`, ...), which stays in scope after a transform.
    in_struct: the names that are fields of one column: of the decoded fields those without a default, or the outputs
        of the last transform.
    Columns are STRING, LONG, DECIMAL(20,0), DOUBLE or BOOLEAN by kind; array, map and any are JSON text.
    """

    kinds: Mapping[str, FieldKind]
    visible: Mapping[str, Column]
    mappable: Mapping[str, Column]
    metadata: Mapping[str, Column]
    in_struct: StructFields = StructFields()

    def after_transform(self, kinds: Mapping[str, FieldKind], column: str) -> "Scope":
        """Return the scope after a stateless transform.

        Expressions may still use the earlier names that no output hides; the mapping may use only outputs and metadata.
        kinds: of the outputs, in the order in which they are in the STRUCT `column`.
        """
        columns = {name: F.col(column).getField(name) for name in kinds}
        return Scope(
            kinds={**without_hidden(self.kinds, list(kinds)), **kinds},
            visible={**without_hidden(self.visible, list(kinds)), **columns, BATCH_TIME: self.visible[BATCH_TIME]},
            mappable={**self.metadata, **columns},
            metadata=self.metadata,
            in_struct=StructFields(column, {name: index for index, name in enumerate(kinds)}),
        )


def field_scope(fields: Sequence[SchemaField], source: int = 0) -> Scope:
    """Return the scope of a decoded record: its declared fields, and Kafka's metadata, which a field's name can hide.

    Both may be used in expressions (visible) and mapped; only expressions may use now(), which reads batch_time.

    source: the index of the record's source among the definition's inputs.
    Columns in: Kafka's metadata (topic, key, partition, offset, timestamp, headers), batch_time, and the STRUCT column
    `FIELDS[source]` of the source's decoded fields.
    """
    columns = {**_metadata(), **{declared.name: _field(declared, FIELDS[source]) for declared in fields}}
    kinds = {**METADATA_FIELDS, **{declared.name: declared.kind for declared in fields}}
    visible = {**columns, BATCH_TIME: F.col("batch_time")}
    positions = {declared.name: index for index, declared in enumerate(fields) if declared.default is None}
    in_struct = StructFields(FIELDS[source], positions)
    return Scope(kinds, visible=visible, mappable=columns, metadata=_metadata(), in_struct=in_struct)


def joined_scope(kinds: Mapping[str, FieldKind], columns: Mapping[str, Column]) -> Scope:
    """Return the scope of a joined event: the join's output fields, and the time of the batch that writes it.

    Column in: batch_time TIMESTAMP.
    """
    metadata = {"_batch_time": _metadata()["_batch_time"]}
    all_columns = {**metadata, **columns}
    all_kinds = {"_batch_time": METADATA_FIELDS["_batch_time"], **kinds}
    visible = {**all_columns, BATCH_TIME: F.col("batch_time")}
    return Scope(all_kinds, visible=visible, mappable=all_columns, metadata=metadata)


def struct_of(columns: Sequence[Column]) -> Column:
    """Return columns as a STRUCT; one of a NULL where there are none, as Spark has no empty one."""
    return F.struct(*(column.alias(f"c{index}") for index, column in enumerate(columns or [F.lit(None)])))


def _field(declared: SchemaField, fields: str) -> Column:
    """Return a declared field's column, with its default for NULL. fields: the STRUCT column of decoded fields."""
    column = F.col(fields).getField(declared.name)
    if declared.default is None:
        return column
    return F.coalesce(column, F.lit(declared.default).cast(FIELD_TYPES[declared.kind]))


def _metadata() -> dict[str, Column]:
    """Return the columns of Kafka's metadata by name, `_topic` and so on."""
    # Times are seconds with a fraction, as in a field; a double keeps microseconds exact.
    timestamp = F.col("timestamp") / F.lit(_MILLISECONDS_PER_SECOND)
    headers = F.coalesce(F.call_function("glassflow_headers", F.col("headers")), F.lit("{}"))
    return {
        **{name: F.col(name.removeprefix("_")).cast(cast) for name, cast in _METADATA_CASTS.items()},
        "_timestamp": timestamp,
        "_headers": headers,
    }
