"""The book of a pipeline's `schema_evolution`: which fields it knew at first, which it took up, and which it could not.

Rows are only appended. A field is taken up once its column is in the table and its row is here; the file of the
definition does not change.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.added_fields import AddedField, with_added_fields
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.schema import PIPELINE_ID, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.names import has_table
from glassflow_dagster.stores.clickhouse.queries import fetch


class Change(StrEnum):
    """What a row says of its field."""

    IGNORED = "ignored"  # it was there when the pipeline first looked
    ADDED = "added"  # it has a column
    REFUSED = "refused"  # the change cannot be taken: `reason`
    STOPPED = "stopped"  # it stopped the pipeline (schema_evolution: fail)


SCHEMA_CHANGES = BookkeepingTable(
    "glassflow_schema_changes",
    (
        PIPELINE_ID,
        Column("number", "UInt32"),
        Column("change", "LowCardinality(String)"),
        Column("field", "String"),
        Column("type", "String"),
        Column("column", "String"),
        Column("column_type", "String"),
        Column("reason", "String"),
        Column("definition", "String"),
    ),
    order_by="(pipeline_id, number)",
    settings=WRITE_EVERYWHERE,
)


@dataclass(frozen=True)
class SchemaChange:
    """A row of the book.

    number: its place in the order.
    definition: the digest of the definition at that time.
    """

    number: int
    change: Change
    field: str
    type: str = ""
    column: str = ""
    column_type: str = ""
    reason: str = ""
    definition: str = ""

    @property
    def added_field(self) -> AddedField:
        """The field of a row with the change ADDED."""
        return AddedField(self.field, self.type, self.column, self.column_type)


def read_schema_changes(client: Client, database: str, pipeline_id: str) -> list[SchemaChange]:
    """Return a pipeline's rows in their order; none where the table does not exist yet."""
    if not has_table(client, database, SCHEMA_CHANGES.name):
        return []
    names = ", ".join(f"`{field.name}`" for field in fields(SchemaChange))
    rows = fetch(
        client,
        f"SELECT {names} FROM {SCHEMA_CHANGES.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        "ORDER BY number, inserted_at",
        {"pipeline": pipeline_id},
    )
    return [SchemaChange(number, Change(change), *rest) for number, change, *rest in rows]


def note_schema_change(client: Client, database: str, pipeline_id: str, change: SchemaChange) -> None:
    """Append a row; raises what `fetch` raises."""
    values = {field.name: getattr(change, field.name) for field in fields(SchemaChange)}
    SCHEMA_CHANGES.insert_row(client, database, {"pipeline_id": pipeline_id, **values, "change": str(change.change)})


def added_fields(changes: Iterable[SchemaChange]) -> list[AddedField]:
    """Return the fields that were taken up, in their order, each once: a row may be written again after an error."""
    added = {change.field: change.added_field for change in changes if change.change is Change.ADDED}
    return list(added.values())


def undecided_changes(changes: Iterable[SchemaChange], config: PipelineConfig) -> list[SchemaChange]:
    """Return the changes that were refused, or that stopped the pipeline, since the definition was last edited.

    config: the effective definition. A field that stopped it is decided on once it is declared.
    """
    digests, declared = config.digests, {field.name for field in config.source.schema_fields}
    return [
        change
        for change in changes
        if (change.change is Change.REFUSED and change.definition in digests)
        or (change.change is Change.STOPPED and change.field not in declared and config.schema_evolution == "fail")
    ]


def effective_definition(client: Client, config: PipelineConfig) -> PipelineConfig:
    """Return the definition with the fields that its pipeline took up; itself where it ignores new fields."""
    if config.schema_evolution == "ignore":
        return config
    database = config.sink.connection_params.database
    return with_added_fields(config, added_fields(read_schema_changes(client, database, config.pipeline_id)))
