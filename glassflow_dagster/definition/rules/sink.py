"""Rules of the sink: its tables, their mappings, and whether repeated inserts can be recognised."""

import re
from collections.abc import Iterator

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Sink, SinkPaths
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.model.types import conversion, declared_as, kinds_taken, takes
from glassflow_dagster.definition.problems import Problem, suggestion
from glassflow_dagster.definition.sql import changing_function
from glassflow_dagster.definition.stages import Stages, TransformStage


def sink_problems(config: PipelineConfig, stages: Stages) -> Iterator[Problem]:
    """Yield the problems of the sink. stages: of the definition."""
    yield from _route_problems(config)
    seen: set[Problem] = set()
    for of_table in config.by_table:
        problems = [
            *_mapping_problems(of_table, stages), *_delivery_problems(of_table), *_partition_problems(of_table)
        ]  # fmt: skip
        # A route without a mapping of its own has the problems of the sink's.
        yield from (problem for problem in problems if problem not in seen)
        seen.update(problems)


def _route_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for a table that is filled twice, and for events whose treatment is not stated, or twice."""
    sink = config.sink
    tables: dict[tuple[str, str], str] = {}
    for of_table in sink.by_table:
        yield from _name_problems(of_table)
        first = tables.setdefault(of_table.full_table, of_table.paths.table)
        if first != of_table.paths.table:
            yield Problem(
                of_table.paths.table,
                f"{of_table.table_name} is {first} already; join the conditions by ||, or name another table",
            )
    for index, route in enumerate(sink.routes):
        if sink.create_table and not route.create_table and (one := _made_for_one_table(sink.create_table.engine)):
            yield Problem(
                f"sink.routes[{index}].create_table",
                f"is missing, and that of the sink is for one table only, since its engine names {one}; add one here",
            )
    if sink.match == "all" and not sink.routes:
        text = f"applies to sink.routes, and there are none: {sink.table_name} is the only table; remove it"
        yield Problem("sink.match", text)
    if sink.filter is not None and sink.unrouted is None:
        text = "is missing, since sink.filter may leave events to no table; add drop or dead_letter"
        yield Problem("sink.unrouted", text)
    if sink.filter is None and sink.unrouted is not None:
        text = f"applies to events that sink.filter leaves; without it {sink.table_name} takes them all; remove it"
        yield Problem("sink.unrouted", text)


# The product's own tables in the database of the connection; stores/bookkeeping/tables.py creates them.
BOOKKEEPING_TABLES = frozenset(
    f"glassflow_{name}"
    for name in (
        "ledger",
        "dead_letters",
        "splits",
        "replays",
        "purges",
        "epochs",
        "windows",
        "losses",
        "schema_changes",
        "drivers",
        "stop_requests",
    )
)


def _name_problems(sink: Sink) -> Iterator[Problem]:
    """Yield a problem for a name that no table can have, and for one of the product's own tables."""
    database, table = sink.full_table
    if not database or not table:
        text = f"{sink.table!r} has an empty part; write TABLE or DATABASE.TABLE"
        yield Problem(sink.paths.table, text)
    elif table in BOOKKEEPING_TABLES and database == sink.connection_params.database:
        text = f"{sink.table!r} is a table in which this product keeps what it has done; name another table"
        yield Problem(sink.paths.table, text)


def _made_for_one_table(engine: str) -> str:
    """Return what an engine names that two tables cannot have in common; '' when there is nothing."""
    if engine.lstrip().startswith("Distributed"):
        return "the table that stores the rows"
    is_replicated = re.match(r"\s*Replicated\w*MergeTree\s*\(\s*'([^']*)'", engine)
    if is_replicated and not re.search(r"\{(table|uuid)\}", is_replicated[1]):
        return "a path in Keeper without {table} or {uuid}"
    return ""


def _mapping_problems(config: PipelineConfig, stages: Stages) -> Iterator[Problem]:
    """Yield the problems of a table's mapping: unknown names, types that do not fit, columns that are filled twice."""
    kinds = stages.mappable
    columns: set[str] = set()
    sink, own = config.sink, SinkPaths()
    for index, mapping in enumerate(sink.mapping):
        path = f"{sink.paths.mapping}[{index}]"
        if mapping.column_name in columns:
            yield Problem(f"{path}.column_name", f"column {mapping.column_name!r} is filled twice; keep one")
        columns.add(mapping.column_name)
        if mapping.name in stages.invalid_names:
            continue  # reported already, with the expression or the join
        if mapping.name not in kinds:
            yield Problem(f"{path}.name", f"{mapping.name!r} is {_unmapped(mapping.name, config, stages)}")
        elif not takes(mapping.parsed_type, kinds[mapping.name]):
            kinds_text = " or ".join(declared_as(kind) for kind in kinds_taken(mapping.parsed_type))
            kind = kinds[mapping.name]
            expression = conversion(mapping.parsed_type, kind, mapping.name)
            remedy = "change the column's or the field's type"
            if expression:
                remedy = f"map an output of a stateless transform, {expression}, or {remedy}"
            field = f"field {mapping.name!r} is {declared_as(kind)}"
            yield Problem(f"{path}.column_type", f"{mapping.column_type} takes {kinds_text}, but {field}; {remedy}")
    for index, extra in enumerate(sink.create_table.columns if sink.create_table else ()):
        if extra.name in columns:
            path = f"{sink.paths.create_table}.columns[{index}].name"
            remedy = "remove it here"
            if sink.paths.mapping != own.mapping and sink.paths.create_table == own.create_table:
                remedy = f"give the route of {sink.paths.table} a create_table of its own"
            yield Problem(path, f"{extra.name!r} is mapped already in {sink.paths.mapping}; {remedy}")


# Engines that may deduplicate inserts, which is checked at the start; no other engine does.
_MAY_DEDUPLICATE = re.compile(r"\s*(\w*MergeTree|Distributed)\b")


def _delivery_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem when exactly-once delivery is asked of an engine that does not deduplicate inserts."""
    table = config.sink.create_table
    if table and config.sink.delivery == "exactly_once" and not _MAY_DEDUPLICATE.match(table.engine):
        yield Problem(
            f"{config.sink.paths.create_table}.engine",
            f"{table.engine} does not recognise a repeated insert; use an engine of the MergeTree family, or set "
            "sink.delivery: at_least_once, with which a repeated batch may duplicate rows",
        )


def _partition_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem when the partition of a row may change in a repeated insert.

    ClickHouse deduplicates insert tokens per partition, so a repeated block must go to the same partition.
    """
    table = config.sink.create_table
    if table is None or not table.partition_by or config.sink.delivery == "at_least_once":
        return
    path = f"{config.sink.paths.create_table}.partition_by"
    if function := changing_function(table.partition_by):
        yield Problem(
            path, f"calls {function}, which may put a repeated row into another partition; partition by fields"
        )
    for column in table.columns:
        is_used = re.search(rf"(?<!\w){re.escape(column.name)}(?!\w)", table.partition_by)
        if is_used and (function := changing_function(column.default or "")):
            yield Problem(
                path,
                f"uses column {column.name!r}, which the server fills with {function}, so a repeated row may get "
                "another partition; remove the column from columns and map _batch_time to it",
            )


def _unmapped(name: str, config: PipelineConfig, stages: Stages) -> str:
    """Return why a mapping cannot use a name, and what to do; the text follows "... is".

    The sink maps outputs of the last stateless transform; without one, a join's output_fields, or else the source's
    fields.
    """
    join, nearest_remedy = config.join, suggestion(name, list(stages.mappable))
    # Without a join only the first source is read.
    sources = config.sources if join else config.sources[:1]
    declared = {field.name for source in sources for field in source.schema_fields}
    if any(isinstance(step, TransformStage) for step in stages.steps):
        if name in ({output.joined_name for output in join.output_fields} if join else declared):
            return "not among the outputs of the last stateless transform; list it there"
        return f"not an output of the last stateless transform; {nearest_remedy}"
    if join:
        remedy = "list it there" if name in declared | METADATA_FIELDS.keys() else nearest_remedy
        return f"not among join.output_fields; {remedy}"
    where = f"no field of {config.source.type}" if config.source.signal else "not in schema_fields"
    return f"{where}; {nearest_remedy}"
