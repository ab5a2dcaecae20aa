"""What more than one field decides: references between the parts of a definition.

Each rule yields `Problem`s; all of them are reported at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from glassflow_dagster.config.model import MAX_DEDUP_WINDOW, METADATA_FIELDS, PipelineConfig
from glassflow_dagster.config.types import FieldKind, kinds_taken


@dataclass(frozen=True)
class Problem:
    """One mistake in a definition: where it is, and what is wrong and to be done.

    `not_yet` marks what is right in GlassFlow's format and only not supported yet.
    """

    path: str
    text: str
    not_yet: bool = False


def problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every mistake that the models alone cannot see."""
    yield from _source_problems(config)
    yield from _dedup_problems(config)
    yield from _mapping_problems(config)
    yield from _connection_problems(config)


def field_kinds(config: PipelineConfig) -> dict[str, FieldKind]:
    """Give every name that a mapping may use, with its kind; a declared field hides Kafka's of the same name."""
    return {**METADATA_FIELDS, **{field.name: field.kind for field in config.source.schema_fields}}


def suggestion(name: str, known: list[str]) -> str:
    """Say what to write instead of an unknown name."""
    lower = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), list(lower), n=1)
    return f"did you mean {lower[close[0]]!r}?" if close else f"use one of {', '.join(known)}"


def _source_problems(config: PipelineConfig) -> Iterator[Problem]:
    if len(config.sources) > 1:
        yield Problem("sources", "two sources need a join, which is not supported yet; keep one")
    for index, source in enumerate(config.sources):
        names = [field.name for field in source.schema_fields]
        for position, name in enumerate(names):
            if name in names[:position]:
                yield Problem(
                    f"sources[{index}].schema_fields[{position}].name", f"{name!r} is declared twice; keep one"
                )


def _dedup_problems(config: PipelineConfig) -> Iterator[Problem]:
    sources = {source.source_id: source for source in config.sources}
    seen: set[str] = set()
    for index, transform in enumerate(config.transforms):
        at = f"transforms[{index}]"
        if transform.source_id not in sources:
            known = suggestion(transform.source_id, list(sources))
            yield Problem(f"{at}.source_id", f"no source is called {transform.source_id!r}; {known}")
            continue
        if transform.source_id in seen:
            yield Problem(at, f"source {transform.source_id!r} has a dedup already; keep one")
        seen.add(transform.source_id)
        dedup = transform.config
        if bool(dedup.key) == bool(dedup.keys):
            yield Problem(f"{at}.config", "name the key once: either key (one field) or keys (a list)")
        if dedup.time_window > MAX_DEDUP_WINDOW:
            yield Problem(f"{at}.config.time_window", "is longer than 7 days; choose 7d or less")
        fields = {field.name: field for field in sources[transform.source_id].schema_fields}
        for name in dedup.key_fields:
            if name not in fields:
                yield Problem(f"{at}.config.key", f"{name!r} is not in schema_fields; {suggestion(name, list(fields))}")
            elif fields[name].kind in ("array", "map"):
                yield Problem(f"{at}.config.key", f"{name!r} is {fields[name].type}; a key is a text, number or bool")
            elif not fields[name].required:
                yield Problem(
                    f"{at}.config.key", f"{name!r} is optional (required: false); a key must be there, make it required"
                )


def _mapping_problems(config: PipelineConfig) -> Iterator[Problem]:
    kinds = field_kinds(config)
    columns: set[str] = set()
    for index, mapping in enumerate(config.sink.mapping):
        at = f"sink.mapping[{index}]"
        if mapping.column_name in columns:
            yield Problem(f"{at}.column_name", f"column {mapping.column_name!r} is filled twice; keep one")
        columns.add(mapping.column_name)
        if mapping.name not in kinds:
            yield Problem(
                f"{at}.name", f"{mapping.name!r} is not in schema_fields; {suggestion(mapping.name, list(kinds))}"
            )
        elif kinds[mapping.name] not in kinds_taken(mapping.parsed_type):
            taken = " or ".join(kinds_taken(mapping.parsed_type))
            yield Problem(
                f"{at}.column_type",
                f"{mapping.column_type} takes {taken}, but field {mapping.name!r} is {kinds[mapping.name]}; "
                "change the column's or the field's type",
            )
    for index, extra in enumerate(config.sink.create_table.columns if config.sink.create_table else ()):
        if extra.name in columns:
            yield Problem(
                f"sink.create_table.columns[{index}].name", f"{extra.name!r} is mapped already; remove it here"
            )


def _connection_problems(config: PipelineConfig) -> Iterator[Problem]:
    for index, source in enumerate(config.sources):
        connection, at = source.connection_params, f"sources[{index}].connection_params"
        if connection.mechanism != "NO_AUTH" and not connection.skip_auth:
            for key in ("username", "password"):
                if not getattr(connection, key):
                    yield Problem(f"{at}.{key}", f"is needed for mechanism {connection.mechanism}; add it")
        if connection.mechanism != "NO_AUTH" and not connection.protocol.startswith("SASL"):
            yield Problem(
                f"{at}.protocol", f"{connection.protocol} has no {connection.mechanism}; use SASL_PLAINTEXT or SASL_SSL"
            )
