"""Takes up new fields between two batches (`schema_evolution`): columns first, then the book, then the definition.

After a crash at any point the next start is whole: a column without its row in the book stays empty until the field is
found again, and with the row the definition has the field from the next batch on. An open batch is finished as it was
begun (outdated_batch.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.added_fields import AddedField, why_not_addable, with_added_fields
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_column_type, same_values
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.start.prepare import Prepared, find_tables
from glassflow_dagster.driver.watch.schema_watch import Found, look
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.fields import MAX_FIELDS, Field
from glassflow_dagster.inference.new_fields import proposed, why_unsteady
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.schema_changes import (
    Change,
    SchemaChange,
    effective_definition,
    note_schema_change,
    read_schema_changes,
    undecided_changes,
)
from glassflow_dagster.stores.clickhouse.errors import AccessDenied, TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import Table, require_table
from glassflow_dagster.stores.clickhouse.tables.ddl import NewColumn, add_column
from glassflow_dagster.stores.kafka.protobuf_values import Ask


def require_not_stopped(client: Client, config: PipelineConfig) -> None:
    """Raise `GlassflowError` where a new field has stopped the pipeline and nobody has decided on it yet."""
    if config.schema_evolution != "fail":
        return
    changes = read_schema_changes(client, config.sink.connection_params.database, config.pipeline_id)
    for change in undecided_changes(changes, config):
        if change.change is Change.STOPPED:
            raise _stopped(config, change.field, change.type)


def _stopped(config: PipelineConfig, field: str, kind: str) -> GlassflowError:
    return GlassflowError(
        f"{config.pipeline_id}: events have a new field {field!r} ({kind}), and the definition says "
        "schema_evolution: fail; declare it in schema_fields (and map it, if it is to be written), or choose ignore or "
        "add_columns"
    )


@dataclass(frozen=True)
class SchemaChanges:
    """The changes of one pipeline's schema.

    epoch: of this driver, which alone may make them.
    ask: see `look`.
    """

    client: Client
    epoch: Epoch
    ask: Ask

    def known(self, run: RunContext) -> frozenset[str] | None:
        """Return the fields on which nothing is left to decide; None before the first look."""
        if run.config.schema_evolution == "ignore":
            return frozenset()
        changes = run.retry(lambda: self._read(run.config))
        return _known(changes, run.config) if changes else None

    def at_start(self, run: RunContext, prepared: Prepared) -> tuple[RunContext, Prepared]:
        """Look before the query starts; return the run as `take` does.

        At the pipeline's first look, all undeclared fields count as known: the definition leaves them out on purpose.
        """
        config = run.config
        # Again, as an older driver may have taken up fields until this one began.
        further = run.retry(lambda: effective_definition(self.client, config))
        if further != config:
            run = replace(run, config=further)
            prepared = replace(prepared, config=further, tables=find_tables(run, self.client))
        known = self.known(run)
        if known is not None:
            # What a table refused may be possible by now.
            changes = run.retry(lambda: self._read(run.config))
            known -= {change.field for change in changes if change.change is Change.REFUSED and change.column}
        try:
            found = look(run.config, known, self.ask)
        except GlassflowError:
            # Kafka or the registry does not answer: the query says so.
            return run, prepared
        return self.take(run, prepared, found)

    def _ignore(self, run: RunContext, names: Sequence[str]) -> None:
        """Note the fields that the topic had at the first look; a row without a field says that it has been."""
        for name in ("", *names):
            self._note(run, SchemaChange(0, Change.IGNORED, name))
        if names:
            run.report(f"fields that the definition does not declare stay ignored: {', '.join(names)}")

    def take(self, run: RunContext, prepared: Prepared, found: Found) -> tuple[RunContext, Prepared]:
        """Take up what was found; return the run and its tables with the definition that has the new fields.

        What cannot be taken up is noted, and reported once. Raises `GlassflowError` where the definition says
        `schema_evolution: fail`, and `Fenced` where a newer driver has started.
        """
        if not found.is_new:
            return run, prepared
        run.retry(lambda: self.epoch.require_newest(self.client))
        if found.is_first:
            self._ignore(run, [field.name for field in found.fields])
            return run, prepared
        for conflict in found.conflicts:
            self._refuse(run, SchemaChange(0, Change.REFUSED, conflict.field, reason=conflict.reason))
        for field in found.fields:
            run, prepared = self._take_field(run, prepared, field)
        return run, prepared

    def _take_field(self, run: RunContext, prepared: Prepared, field: Field) -> tuple[RunContext, Prepared]:
        """Take up one field, as `take` does."""
        config = run.config
        added = proposed(field, {mapping.column_name for mapping in config.sink.mapping})
        change = SchemaChange(0, Change.ADDED, added.name, added.type, added.column, added.column_type)
        if config.schema_evolution == "fail":
            self._note(run, replace(change, change=Change.STOPPED))
            raise _stopped(config, added.name, added.type)
        further = with_added_fields(config, [added])
        if reason := (
            why_unsteady(field)
            or why_not_addable(config, added)
            or self._add_columns(run, further, prepared.tables, added)
        ):
            self._refuse(run, replace(change, change=Change.REFUSED, reason=reason))
            return run, prepared
        self._note(run, change)
        run.report(f"new field {added.name}: fills column {added.column} ({added.column_type}) from the next batch on")
        changed = replace(run, config=further)
        return changed, replace(prepared, config=further, tables=find_tables(changed, self.client))

    def _add_columns(self, run: RunContext, config: PipelineConfig, tables: Sequence[Table], added: AddedField) -> str:
        """Add the field's column to the tables that lack it; return why that is not possible, '' if it is done."""
        # Not those of routes with a mapping of their own.
        own = config.sink.mapping
        filled = [
            table for of_table, table in zip(config.by_table, tables, strict=True) if of_table.sink.mapping == own
        ]
        try:
            filled = [self._as_it_is(run, table) for table in filled]
            for table in filled:
                if reason := _why_no_column(table, added, config):
                    return reason
            for table in filled:
                if added.column not in table.columns:
                    statement = add_column(table.database, table.name, NewColumn("", added.column, added.column_type))
                    run.retry(partial(execute, self.client, statement))
                    run.report(statement)
                    # Another pipeline may have added a column of this name, of which the statement says nothing.
                    if reason := _why_no_column(self._as_it_is(run, table), added, config):
                        return reason
        except (AccessDenied, TableProblem) as problem:
            return str(problem)
        return ""

    def _as_it_is(self, run: RunContext, table: Table) -> Table:
        """Return a table as it is now: other pipelines may fill it, and add columns; raises `TableProblem`."""
        return run.retry(partial(require_table, self.client, table.database, table.name))

    def _refuse(self, run: RunContext, change: SchemaChange) -> None:
        """Note and report a change that cannot be taken, unless that is noted; the stream goes on."""
        noted = run.retry(lambda: self._read(run.config))
        if (change.field, change.reason) in {(known.field, known.reason) for known in noted}:
            return
        self._note(run, change)
        run.warn(f"{change.field}: {change.reason}; the stream goes on without this change of the schema")

    def _note(self, run: RunContext, change: SchemaChange) -> None:
        """Append a row to the book, with the next number."""
        database, pipeline_id = run.config.sink.connection_params.database, run.config.pipeline_id
        number = len(run.retry(lambda: self._read(run.config)))
        row = replace(change, number=number, definition=run.config.digest)
        run.retry(lambda: note_schema_change(self.client, database, pipeline_id, row))

    def _read(self, config: PipelineConfig) -> list[SchemaChange]:
        return read_schema_changes(self.client, config.sink.connection_params.database, config.pipeline_id)


def _known(changes: Iterable[SchemaChange], config: PipelineConfig) -> frozenset[str]:
    """Return the fields of the rows; a change that was refused may fit an edited definition."""
    digests = config.digests
    return frozenset(
        change.field
        for change in changes
        if (change.change is not Change.REFUSED or change.definition in digests)
        and (change.change is not Change.STOPPED or config.schema_evolution == "fail")
    )


def _why_no_column(table: Table, added: AddedField, config: PipelineConfig) -> str:
    """Return why a table cannot have the column of a field; '' if it can, or has it."""
    if len(config.source.schema_fields) > MAX_FIELDS:
        return f"the definition has {MAX_FIELDS} fields already; declare it, if it is to be written"
    column = table.columns.get(added.column)
    if column is None:
        if table.family.endswith("MergeTree"):
            return ""
        return (
            f"no column can be added to {table.full_name} ({table.engine}) from here; add it there and behind it, then "
            "declare and map the field"
        )
    takes_it = same_values(parse_column_type(added.column_type), column.type) and column.type.nullable
    if column.default_kind or not takes_it:
        return (
            f"{table.full_name} has a column {added.column!r} already, {column.text}, which is not {added.column_type} "
            f"without a default; declare the field and map it to another column"
        )
    return ""
