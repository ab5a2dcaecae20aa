"""Rules of a join: what its parts and its two sources must have in common.

Each rule yields `Problem`s; it skips what an invalid reference makes impossible to check.
"""

from collections.abc import Iterator, Mapping

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.join import MAX_JOIN_WINDOW, JoinConfig, JoinSide
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS, SchemaField, Source
from glassflow_dagster.definition.model.transforms import Dedup, Filter, Stateless
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.problems import Problem, suggestion
from glassflow_dagster.definition.rules.clock import event_time_problems, only_with_event_clock

_NUMBERS: tuple[FieldKind, ...] = ("int", "uint", "float")
# Not arrays and objects: they are carried as JSON text, and equal values may have different texts.
_KEY_KINDS: tuple[FieldKind, ...] = ("string", "bool", *_NUMBERS, "decimal", "bigint", "ubigint")
_LEFT, _RIGHT = "join.left_source", "join.right_source"


def join_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every problem of the join, and of a join that is missing although there are two sources."""
    join = config.join
    if join is None:
        if len(config.sources) > 1 and not any(source.signal for source in config.sources):
            yield Problem("sources", "two sources need a join; add `join`, or keep one source")
        return
    yield from _sources_problems(config.sources)
    sources = {source.source_id: source for source in config.sources}
    if join.id in sources:
        yield Problem("join.id", f"{join.id!r} is the name of a source; choose another")
    for path, side in ((_LEFT, join.left_source), (_RIGHT, join.right_source)):
        yield from _side_problems(path, side, sources)
    if join.left_source.source_id == join.right_source.source_id:
        yield Problem(f"{_RIGHT}.source_id", "is the left source too; name the other one")
    yield from _key_pair_problems(join, sources)
    yield from _clock_problems(join, sources)
    yield from _output_problems(join, sources)


def transform_problems(path: str, transform: Dedup | Filter | Stateless, config: PipelineConfig) -> Iterator[Problem]:
    """Yield the problems of a transform beside a join.

    Dedup on the joined events, a stateless transform of a source, and dedup with the event clock are not possible.
    """
    join = config.join
    if join is None or join.id in {source.source_id for source in config.sources}:
        return  # a join with the id of a source is reported by `join_problems`
    of_join = transform.source_id == join.id
    if isinstance(transform, Dedup) and of_join:
        sources = " or ".join(source.source_id for source in config.sources)
        yield Problem(
            f"{path}.source_id", f"{join.id!r} is the join, and events are deduplicated before it; name {sources}"
        )
    elif isinstance(transform, Stateless) and not of_join:
        yield Problem(
            f"{path}.source_id",
            f"{transform.source_id!r} is a source of the join, which only filters and dedup may precede; write "
            f"source_id: {join.id}, where expressions use the output_fields",
        )
    elif isinstance(transform, Dedup) and transform.config.clock == "event":
        yield Problem(
            f"{path}.config.clock",
            "event is not supported with a join; write processing, and remove event_time and its settings",
        )


def _sources_problems(sources: tuple[Source, ...]) -> Iterator[Problem]:
    """Yield the problems of the two sources: one consumer reads both, and tells their records apart by topic."""
    if len(sources) == 1:
        yield Problem("sources", "a join needs two sources, and there is one; add one, or remove the join")
        return
    first, second, *further = sources
    if further:
        yield Problem("sources", f"a join takes two sources, and there are {len(sources)}; keep two")
    if first.source_id == second.source_id:
        yield Problem("sources[1].source_id", f"{second.source_id!r} is the name of sources[0] too; choose another")
    yield from _topics_problems(first, second)
    remedy = "both use one connection, so write the same in both"
    for name in KafkaConnection.model_fields:
        # The values stay out of the text: some are secrets.
        if getattr(first.connection_params, name) != getattr(second.connection_params, name):
            yield Problem(f"sources[1].connection_params.{name}", f"differs from that of sources[0]; {remedy}")
    if first.isolation != second.isolation:
        yield Problem("sources[1].isolation", f"differs from that of sources[0]; {remedy}")


def _topics_problems(first: Source, second: Source) -> Iterator[Problem]:
    """Yield a problem for a topic that both sources read, and for a pattern."""
    for topic in second.topic_names:
        if topic in first.topic_names:
            yield Problem("sources[1].topic", f"{topic!r} is the topic of sources[0] too; a join needs two topics")
    for index, source in enumerate((first, second)):
        if source.topic_pattern:
            yield Problem(f"sources[{index}].topic_pattern", "is not supported with a join; write topic or topics")


def _side_problems(side_path: str, side: JoinSide, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield the problems of one side: its source, its window, and the fields of its key."""
    if bool(side.key) == bool(side.keys):
        yield Problem(f"{side_path}.key", "name the key once: either key (one field) or keys (a list)")
    if side.time_window > MAX_JOIN_WINDOW:
        yield Problem(f"{side_path}.time_window", "is longer than 7 days; choose 7d or less")
    if side.source_id not in sources:
        remedy = suggestion(side.source_id, list(sources))
        yield Problem(f"{side_path}.source_id", f"no source is called {side.source_id!r}; {remedy}")
        return
    fields = _fields(sources[side.source_id])
    for path, name in _key_paths(side_path, side):
        if name not in fields:
            yield Problem(path, f"{name!r} is not in schema_fields; {suggestion(name, list(fields))}")
        elif fields[name].kind not in _KEY_KINDS:
            yield Problem(path, f"{name!r} is {fields[name].type}; a key is a string, number or bool")


def _key_pair_problems(join: JoinConfig, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield a problem when the sides' keys have different numbers of parts, or parts of kinds that are never equal.

    A key that is invalid by itself is reported elsewhere.
    """
    left_kinds, right_kinds = (_key_kinds(side, sources) for side in join.sides)
    if not left_kinds or not right_kinds:
        return
    if len(left_kinds) != len(right_kinds):
        key = "keys" if join.right_source.keys else "key"
        count = f"has {len(right_kinds)} part{'s' * (len(right_kinds) > 1)}, and the left source's {len(left_kinds)}"
        yield Problem(f"{_RIGHT}.{key}", f"{count}; name as many, in the same order")
        return
    parts = zip(
        join.left_source.key_fields, _key_paths(_RIGHT, join.right_source), left_kinds, right_kinds, strict=True
    )
    for left_name, (path, right_name), left_kind, right_kind in parts:
        are_numbers = {left_kind, right_kind} <= {*_NUMBERS}
        # None: an invalid field, which is reported elsewhere.
        if left_kind and right_kind and left_kind != right_kind and not are_numbers:
            yield Problem(
                path,
                f"{right_name!r} is {right_kind}, but {left_name!r} of the left source is {left_kind}, so they are "
                "never equal; name fields of one kind (int, uint and float go together)",
            )


def _key_kinds(side: JoinSide, sources: Mapping[str, Source]) -> list[FieldKind | None]:
    """Return the kind of each part of a key; None for an invalid part.

    Empty for an unknown source, and unless exactly one of `key` and `keys` is set.
    """
    if side.source_id not in sources or bool(side.key) == bool(side.keys):
        return []
    kinds = {name: field.kind for name, field in _fields(sources[side.source_id]).items() if field.kind in _KEY_KINDS}
    return [kinds.get(name) for name in side.key_fields]


def _clock_problems(join: JoinConfig, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield the problems of the join's clock, and of the settings that go with the event clock only."""
    sides = ((_LEFT, join.left_source), (_RIGHT, join.right_source))
    if join.clock == "processing":
        join_settings = ("allowed_lateness", "idle_timeout")
        yield from only_with_event_clock("join", (key for key in join_settings if key in join.model_fields_set))
        for side_path, side in sides:
            side_settings = ("event_time", "event_time_unit")
            yield from only_with_event_clock(
                side_path, (key for key in side_settings if getattr(side, key) is not None)
            )
        return
    if join.allowed_lateness is not None and join.allowed_lateness > MAX_JOIN_WINDOW:
        yield Problem("join.allowed_lateness", "is longer than 7 days; choose 7d or less")
    for side_path, side in sides:
        if side.source_id in sources:
            yield from event_time_problems(side_path, side, _fields(sources[side.source_id]))


def _output_problems(join: JoinConfig, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield the problems of output_fields: unknown sources and fields, and names that are used twice or reserved."""
    sides = [side.source_id for side in join.sides]
    first_index: dict[str, int] = {}  # name in the joined event -> the first output with it
    for index, output in enumerate(join.output_fields):
        path = f"join.output_fields[{index}]"
        if output.source_id not in sides:
            remedy = suggestion(output.source_id, sides)
            yield Problem(f"{path}.source_id", f"{output.source_id!r} is not a source of the join; {remedy}")
        elif output.source_id in sources:
            names = [*_fields(sources[output.source_id]), *METADATA_FIELDS]
            if output.name not in names:
                where = f"schema_fields of source {output.source_id!r}"
                yield Problem(f"{path}.name", f"{output.name!r} is not in {where}; {suggestion(output.name, names)}")
        if output.joined_name == "_batch_time":
            text = "'_batch_time' is reserved for the joined event; choose another output_name"
            yield Problem(f"{path}.output_name", text)
        elif output.joined_name in first_index:
            other = f"join.output_fields[{first_index[output.joined_name]}]"
            text = f"{output.joined_name!r} is the name of {other} too; give one of them another output_name"
            yield Problem(f"{path}.output_name", text)
        first_index.setdefault(output.joined_name, index)


def _fields(source: Source) -> dict[str, SchemaField]:
    return {field.name: field for field in source.schema_fields}


def _key_paths(side_path: str, side: JoinSide) -> list[tuple[str, str]]:
    """Return path and field name of each part of the key of the side at `side_path`."""
    if side.keys:
        return [(f"{side_path}.keys[{index}]", name) for index, name in enumerate(side.keys)]
    return [(f"{side_path}.key", side.key)] if side.key else []
