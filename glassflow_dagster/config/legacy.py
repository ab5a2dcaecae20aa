"""GlassFlow's older formats, v1 and v2, rewritten as v3.

A definition is taken for an older one by its content: `version: v1` or `v2` (`2.0.0` is v2), or no version and `source`
where v3 has `sources`. v1 and v2 are read as one format, because files in use mix their shapes: flat and nested
connections, `id_field` and `key`, `table_mapping`, `schema.fields` and `mapping`.

The texts are rewritten before any `${VAR}` is filled in, so a reference stays one, and loading an older file is the
same as loading what `convert` prints. Three meanings change with the format and are rewritten with it:
a filter drops what matches, v3's keeps it; passwords of ClickHouse are in base64, v3's are plain; and a join names its
output by columns. A password with a `${VAR}` in it is taken as it is: the variable holds the plain password.

GlassFlow's API of their time ignored keys that it did not know, and files in use hold such keys. They are left out here
too, each with a warning; in v3 an unknown key is a mistake.

The rewritten parts carry the paths they came from (`_At`), so that whatever is found wrong with them afterwards is
told at the place in the file that the author knows. Fields that only expressions name are declared as `any`.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool

from glassflow_dagster.config.model import METADATA_FIELDS
from glassflow_dagster.config.problems import Problem, suggestion
from glassflow_dagster.config.types import with_usual_case
from glassflow_dagster.config.variables import VARIABLE, holds_variable
from glassflow_dagster.expressions.language.check import undeclared_names
from glassflow_dagster.expressions.language.errors import ExpressionError

OLDER_VERSIONS = ("v1", "v2", "2.0.0")

_Object = dict[str, Any]
_ABSENT = object()
_ORIENTATIONS = ("left", "right")
# Keys of a ClickHouse connection, flat in `sink` or nested in `sink.connection_params`.
_CONNECTION_KEYS = (
    "host",
    "port",
    "http_port",
    "database",
    "username",
    "password",
    "secure",
    "skip_certificate_verification",
)


class _Shape(BaseModel):
    """Which keys an older object may have; v3's models judge the values, after the rewriting."""

    model_config = ConfigDict(extra="forbid")


class _Field(_Shape):
    source_id: str | None = None
    name: Any = None
    type: Any = None
    column_name: Any = None
    column_type: Any = None


class _Schema(_Shape):
    type: Any = None
    fields: list[_Field] | None = None


class _Deduplication(_Shape):
    enabled: StrictBool | None = None
    id_field: Any = None
    key: Any = None
    id_field_type: Any = None
    time_window: Any = None


class _Topic(_Shape):
    id: str | None = None
    name: str | None = None
    consumer_group_initial_offset: Any = None
    replicas: Any = None
    topic_schema: _Schema | None = None
    schema_fields: list[_Field] | None = None
    schema_version: Any = None
    schema_registry: Any = None
    deduplication: _Deduplication | None = None

    # `schema` itself is a method of pydantic's models.
    model_config = ConfigDict(extra="forbid", alias_generator=lambda name: name.removeprefix("topic_"))


class _Source(_Shape):
    type: Any = None
    provider: Any = None
    connection_params: Any = None
    topics: list[_Topic]


class _JoinSource(_Shape):
    source_id: str | None = None
    join_key: Any = None
    key: Any = None
    time_window: Any = None
    orientation: Any = None


class _Join(_Shape):
    enabled: StrictBool | None = None
    type: Any = None
    id: Any = None
    sources: list[_JoinSource] | None = None
    fields: list[_Object] | None = None


class _Filter(_Shape):
    enabled: StrictBool | None = None
    id: Any = None
    source_id: Any = None
    expression: Any = None


class _StatelessConfig(_Shape):
    transform: list[_Object] | None = None


class _Stateless(_Shape):
    enabled: StrictBool | None = None
    id: str | None = None
    type: Any = None
    source_id: str | None = None
    config: _StatelessConfig | None = None


class _TableMapping(_Shape):
    source_id: str | None = None
    field_name: Any = None
    column_name: Any = None
    column_type: Any = None


class _Connection(_Shape):
    host: Any = None
    port: Any = None
    http_port: Any = None
    database: Any = None
    username: Any = None
    password: Any = None
    secure: Any = None
    skip_certificate_verification: Any = None


class _Sink(_Connection):
    type: Any = None
    provider: Any = None
    connection_params: _Connection | None = None
    table: Any = None
    max_batch_size: Any = None
    max_delay_time: Any = None
    source_id: Any = None
    table_mapping: list[_TableMapping] | None = None
    mapping: list[_Field] | None = None


class _Ingestor(_Shape):
    base: _Object | None = None
    left: _Object | None = None
    right: _Object | None = None


class _Resources(_Shape):
    ingestor: _Ingestor | None = None
    join: _Object | None = None
    transform: _Object | None = None
    sink: _Object | None = None
    nats: _Object | None = None


class _Definition(_Shape):
    version: Any = None
    pipeline_id: Any = None
    name: Any = None
    metadata: Any = None
    source: _Source
    join: _Join | None = None
    filter: _Filter | None = None
    stateless_transformation: _Stateless | None = None
    older_schema: _Schema | None = None
    sink: _Sink
    pipeline_resources: _Resources | None = None

    model_config = ConfigDict(extra="forbid", alias_generator=lambda name: name.removeprefix("older_"))


@dataclass(frozen=True)
class _At:
    """A part of the v3 definition, and the path that it had in the older file; `_ABSENT` is left out."""

    path: str
    value: Any


@dataclass(frozen=True)
class Rewritten:
    """An older definition as v3.

    `definition` is the v3 object, `problems` what could not be rewritten, `undeclared` fields that only expressions
    name, `ignored` the keys that were left out since nobody knows them, `origins` the path that each v3 path had.
    """

    definition: _Object
    problems: tuple[Problem, ...] = ()
    undeclared: tuple[Problem, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    ignored: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is right and may be meant otherwise; the same key of several sources is one key of an older file."""
        return tuple(dict.fromkeys(f"{noted.path}: {noted.text}" for noted in (*self.ignored, *self.undeclared)))

    def origin(self, problem: Problem) -> Problem:
        """Move a problem of the v3 definition to where its cause stands in the older file."""
        path, rest = problem.path, ""
        while path and path not in self.origins:
            cut = max(path.rfind("."), path.rfind("["), 0)
            path, rest = path[:cut], path[cut:] + rest
        if path:
            return replace(problem, path=self.origins[path] + rest)
        return replace(problem, text=f"{problem.text} (the path is that of the v3 form, which `convert` prints)")


def is_older(raw: _Object) -> bool:
    """Whether a parsed file is written in v1 or v2."""
    version = raw.get("version")
    if version in OLDER_VERSIONS:
        return True
    return not version and "source" in raw and "sources" not in raw


def check_shape(raw: _Object) -> None:
    """Raise pydantic's `ValidationError` where an older definition has unknown keys or parts of another shape."""
    _Definition.model_validate(raw)


def rewrite(raw: _Object) -> Rewritten:
    """Rewrite an older definition, whose shape was checked, as v3; nothing of `raw` is changed."""
    found: list[Problem] = []
    topics = [(f"source.topics[{i}]", topic) for i, topic in enumerate(_part(raw, "source")["topics"])]
    draft = {
        "version": "v3",
        **_kept(raw, "", "pipeline_id", "name", "metadata"),
        "sources": _At("source.topics", [_source(raw, at, topic) for at, topic in topics]),
        "transforms": _transforms(raw, topics, found),
        "join": _join(raw, found),
        "sink": _At("sink", _sink(raw, found)),
        "resources": _At("pipeline_resources", _resources(raw, topics) or _ABSENT),
    }
    _check_references(raw, topics, found)
    origins: dict[str, str] = {}
    definition = _resolved(draft, "", origins)
    return Rewritten(definition, tuple(found), tuple(_reads_undeclared(raw, topics)), origins)


def _part(owner: _Object, key: str) -> _Object:
    found: _Object = owner.get(key) or {}
    return found


def _items(owner: _Object, key: str) -> list[_Object]:
    found: list[_Object] = owner.get(key) or []
    return found


def _kept(owner: _Object, at: str, *keys: str, empty: tuple[Any, ...] = (None,)) -> _Object:
    """Take keys that are called the same in v3; values in `empty` count as left out."""
    place = f"{at}." if at else ""
    return {
        key: _At(place + key, _ABSENT if (value := owner.get(key)) is None or value in empty else value) for key in keys
    }


def _resolved(part: Any, path: str, origins: dict[str, str]) -> Any:
    """Give the plain value of a draft, and note in `origins` where its parts came from."""
    if isinstance(part, _At):
        origins[path] = part.path
        return _resolved(part.value, path, origins)
    if isinstance(part, dict):
        inner = {k: _resolved(v, f"{path}.{k}" if path else str(k), origins) for k, v in part.items()}
        return {k: v for k, v in inner.items() if v is not _ABSENT}
    if isinstance(part, list):
        return [_resolved(v, f"{path}[{i}]", origins) for i, v in enumerate(part)]
    return part


def _topic_id(topic: _Object) -> Any:
    return topic.get("id") or topic.get("name") or _ABSENT


def _topics(raw: _Object) -> list[_Object]:
    return _items(_part(raw, "source"), "topics")


def _enabled(part: _Object, path: str, found: list[Problem]) -> bool:
    """Whether a part is switched on; one that says much but not that is a mistake, in GlassFlow too."""
    if part and part.get("enabled") is None:
        found.append(Problem(f"{path}.enabled", "is missing; write true or false"))
    return bool(part.get("enabled"))


def _source(raw: _Object, at: str, topic: _Object) -> _At:
    source = _part(raw, "source")
    named = "id" if topic.get("id") else "name"
    return _At(
        at,
        {
            **_kept(source, "source", "type"),
            "source_id": _At(f"{at}.{named}", topic.get(named, _ABSENT)),
            **_kept(source, "source", "connection_params"),
            "topic": _At(f"{at}.name", topic.get("name", _ABSENT)),
            "schema_fields": _schema_fields(raw, at, topic),
            **_kept(topic, at, "schema_version", "schema_registry"),
            # GlassFlow reads an empty offset as none given.
            **_kept(topic, at, "consumer_group_initial_offset", empty=("",)),
        },
    )


def _schema_fields(raw: _Object, at: str, topic: _Object) -> _At:
    """Give the fields of a topic, and after them those that only expressions name."""
    declared = _declared(raw, at, topic)
    schema = _part(raw, "schema")
    # A list that has the fields of other topics only is not what is missing.
    usual = "schema.fields" if schema and not schema.get("fields") else f"{at}.schema.fields"
    # Where nothing is declared, that is the mistake to tell.
    added = _undeclared(raw, at, topic) if declared else {}
    fields = [_At(place, _kept(entry, place, "name", "type")) for place, entry in declared]
    fields += [_At(place, {"name": name, "type": "any", "required": False}) for name, place in added.items()]
    given = declared[0][0].rpartition("[")[0] if declared else usual
    return _At(given, fields or _ABSENT)


def _declared(raw: _Object, at: str, topic: _Object) -> list[tuple[str, _Object]]:
    """Gather the fields of a topic from the three places that may declare them; a repetition counts once."""
    topics, schema = _topics(raw), _part(raw, "schema")
    places = [
        (f"{at}.schema.fields", _items(_part(topic, "schema"), "fields")),
        (f"{at}.schema_fields", _items(topic, "schema_fields")),
        ("schema.fields", _items(schema, "fields")),
    ]
    declared: list[tuple[str, _Object]] = []
    seen: list[tuple[Any, Any]] = []
    for place, fields in places:
        for index, entry in enumerate(fields):
            mine = place != "schema.fields" or (_owner(entry, topics) == _topic_id(topic))
            if mine and (entry.get("name"), entry.get("type")) not in seen:
                seen.append((entry.get("name"), entry.get("type")))
                declared.append((f"{place}[{index}]", entry))
    return declared


def _undeclared(raw: _Object, at: str, topic: _Object) -> dict[str, str]:
    """Give the fields that a topic's expressions read and nothing declares, each with the place that reads it first.

    GlassFlow adds them to the schema when it migrates a file; its expressions see the whole event.
    """
    declared = [*METADATA_FIELDS, *(str(entry.get("name")) for _, entry in _declared(raw, at, topic))]
    found: dict[str, str] = {}
    for place, expression in _expressions(raw, topic):
        # What a variable holds is not known here; a number may stand nearly everywhere.
        text = VARIABLE.sub("0", expression)
        # What is no expression is told when v3's form is judged.
        with suppress(ExpressionError):
            for name in undeclared_names(text, declared):
                found.setdefault(name, place)
    return found


def _expressions(raw: _Object, topic: _Object) -> Iterator[tuple[str, str]]:
    """List what is evaluated on the events of a topic, by its place."""
    condition, stateless = _part(raw, "filter"), _part(raw, "stateless_transformation")
    outputs = _items(_part(stateless, "config"), "transform") if stateless.get("enabled") else []
    given = [
        ("filter.expression", condition, condition.get("expression") if condition.get("enabled") else None),
        *(
            (f"stateless_transformation.config.transform[{i}].expression", stateless, output.get("expression"))
            for i, output in enumerate(outputs)
        ),
    ]
    for place, part, expression in given:
        if isinstance(expression, str) and _evaluated_on(raw, part) == _topic_id(topic):
            yield place, expression


def _evaluated_on(raw: _Object, part: _Object) -> Any:
    """Give the id of the topic that a filter or transformation belongs to: the first one where it names none."""
    return part.get("source_id") or (_topic_id(_topics(raw)[0]) if _topics(raw) else _ABSENT)


def _reads_undeclared(raw: _Object, topics: list[tuple[str, _Object]]) -> Iterator[Problem]:
    """Say which fields are read without a declaration: it may be a slip of the pen."""
    for at, topic in topics:
        names = [str(entry.get("name")) for _, entry in _declared(raw, at, topic)]
        for name, place in _undeclared(raw, at, topic).items():
            close = get_close_matches(name, names, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "declare it with its type"
            yield Problem(place, f"{name!r} is not declared, so it may be any value, or missing (nil); {remedy}")


def _owner(entry: _Object, topics: list[_Object]) -> Any:
    """Give the id of the topic (or transform) that an entry belongs to; it may be left out where there is one topic."""
    return entry.get("source_id") or (_topic_id(topics[0]) if len(topics) == 1 else None)


def _transforms(raw: _Object, topics: list[tuple[str, _Object]], found: list[Problem]) -> Any:
    """Give the transforms in the order in which GlassFlow applies them: filter, deduplication, expressions."""
    transforms = [
        *_filter(raw, found),
        *(dedup for at, topic in topics for dedup in _dedup(at, topic, found)),
        *_stateless(raw, found),
    ]
    return transforms or _ABSENT


def _filter(raw: _Object, found: list[Problem]) -> Iterator[_At]:
    """Turn a filter that drops what matches into one that keeps the rest."""
    old = _part(raw, "filter")
    if not _enabled(old, "filter", found):
        return
    expression = old.get("expression")
    if not isinstance(expression, str) or not expression.strip():
        found.append(Problem("filter.expression", "is missing or empty; write it, or set enabled to false"))
        return
    # A comment at the end of the expression must not swallow the parenthesis.
    line = "\n" if "//" in expression else ""
    config = {"expression": _At("filter.expression", f"not ({expression.strip()}{line})")}
    if _join_id(raw) and not old.get("source_id"):
        found.append(_unplaced(raw, "filter"))
    source = _At("filter.source_id", _evaluated_on(raw, old))
    yield _At("filter", {"type": "filter", "source_id": source, "config": config})


def _dedup(at: str, topic: _Object, found: list[Problem]) -> Iterator[_At]:
    place, old = f"{at}.deduplication", _part(topic, "deduplication")
    if not _enabled(old, place, found):
        return
    key, named = _one_of(old, place, ("id_field", "key"), found)
    config = {"key": _At(f"{place}.{named}", key), **_kept(old, place, "time_window")}
    if key is _ABSENT:
        found.append(Problem(f"{place}.id_field", "is missing; name the field that identifies an event"))
    source = _At(f"{at}.name", _topic_id(topic))
    yield _At(place, {"type": "dedup", "source_id": source, "config": _At(place, config)})


def _one_of(owner: _Object, at: str, keys: tuple[str, str], found: list[Problem]) -> tuple[Any, str]:
    """Give the value of a key that has two names, and the name that was used."""
    given = [key for key in keys if owner.get(key) is not None]
    if len(given) > 1 and owner[given[0]] != owner[given[1]]:
        found.append(Problem(f"{at}.{given[1]}", f"differs from {given[0]}, which means the same; keep one"))
    return (owner[given[0]], given[0]) if given else (_ABSENT, keys[0])


def _stateless(raw: _Object, found: list[Problem]) -> Iterator[_At]:
    place, old = "stateless_transformation", _part(raw, "stateless_transformation")
    if not _enabled(old, place, found):
        return
    if old.get("type") not in (None, "", "expr_lang_transform"):
        found.append(Problem(f"{place}.type", "must be 'expr_lang_transform'"))
    if _join_id(raw):
        text = (
            "does not go with a join in v1 and v2; write false, and add a stateless transform of the join to the "
            "converted definition"
        )
        found.append(Problem(f"{place}.enabled", text))
        return
    transforms = _At(f"{place}.config.transform", _items(_part(old, "config"), "transform"))
    yield _At(
        place,
        {
            "type": "stateless",
            "source_id": _At(f"{place}.source_id", _evaluated_on(raw, old)),
            "config": _At(f"{place}.config", {"transforms": transforms}),
        },
    )


def _join(raw: _Object, found: list[Problem]) -> Any:
    old = _part(raw, "join")
    if not _enabled(old, "join", found):
        return _ABSENT
    _check_orientations(old, found)
    sides = {}
    for side in _ORIENTATIONS:
        mine = [(i, s) for i, s in enumerate(_items(old, "sources")) if s.get("orientation") == side]
        if len(mine) != 1:
            found.append(Problem("join.sources", f"has {len(mine)} sources with orientation {side!r}; write one"))
            sides[f"{side}_source"] = _At("join.sources", _ABSENT)
            continue
        index, source = mine[0]
        at = f"join.sources[{index}]"
        key, named = _one_of(source, at, ("join_key", "key"), found)
        if key is _ABSENT:
            found.append(
                Problem(f"{at}.{named}", "is missing; name the field that the other source's events are found by")
            )
        kept = _kept(source, at, "source_id", "time_window")
        sides[f"{side}_source"] = _At(
            at, {"source_id": kept["source_id"], "key": _At(f"{at}.{named}", key), "time_window": kept["time_window"]}
        )
    fields = _At("join.fields", old["fields"]) if old.get("fields") else _output_fields(raw, found)
    kept = _kept(old, "join", "id", empty=("",))
    joined = {"enabled": True, **kept, "type": old.get("type") or "temporal", **sides, "output_fields": fields}
    return _At("join", joined)


def _join_id(raw: _Object) -> str:
    """Give the name by which a filter is said to follow the join; empty where there is none."""
    join = _part(raw, "join")
    return str(join.get("id") or "join") if join.get("enabled") else ""


def _check_orientations(join: _Object, found: list[Problem]) -> None:
    for index, source in enumerate(_items(join, "sources")):
        given = source.get("orientation")
        if given not in _ORIENTATIONS:
            said = "is missing" if given in (None, "") else f"{given!r} is none"
            found.append(Problem(f"join.sources[{index}].orientation", f"{said}; write left or right"))


def _unplaced(raw: _Object, place: str) -> Problem:
    """Say that a filter names no stream: which of the two sources, or the join, GlassFlow says nowhere."""
    topics = " or ".join(repr(_topic_id(topic)) for topic in _topics(raw) if _topic_id(topic) is not _ABSENT)
    join = repr(_join_id(raw))
    return Problem(
        f"{place}.source_id",
        f"is missing; with a join write {topics} for what is filtered before it, or {join} for what follows it, where "
        "fields are called as their columns",
    )


def _output_fields(raw: _Object, found: list[Problem]) -> Any:
    """Name what a join puts out after the columns that it fills."""
    place, entries = _mapping_entries(raw)
    if place == "sink.mapping":
        found.append(Problem("join.fields", "is missing; list source_id, name and output_name of each joined field"))
        return _At("join.fields", _ABSENT)
    outputs = [
        _At(at, {
            **_kept(entry, at, "source_id"),
            "name": _At(f"{at}.{named}", entry.get(named, _ABSENT)),
            "output_name": _At(f"{at}.column_name", entry.get("column_name", _ABSENT)),
        })
        for at, named, entry in entries
    ]  # fmt: skip
    # Without any column, the mapping is the mistake to tell.
    return _At(place, outputs or _ABSENT)


def _mappings(raw: _Object) -> list[tuple[str, list[tuple[str, str, _Object]]]]:
    """List the mappings that a file has: place, and each entry's path, the key of its field's name, and the entry."""
    sink, schema = _part(raw, "sink"), _part(raw, "schema")
    places = [
        ("sink.table_mapping", "field_name", _items(sink, "table_mapping")),
        ("sink.mapping", "name", _items(sink, "mapping")),
        ("schema.fields", "name", _items(schema, "fields")),
    ]
    found = []
    for place, named, fields in places:
        entries = [(f"{place}[{i}]", named, entry) for i, entry in enumerate(fields)]
        # In schema.fields an entry without a column only declares its field.
        mapped = [e for e in entries if place != "schema.fields" or e[2].get("column_name") or e[2].get("column_type")]
        found += [(place, mapped)] if mapped else []
    return found


def _mapping_entries(raw: _Object) -> tuple[str, list[tuple[str, str, _Object]]]:
    """Give the mapping that counts; `_check_references` sees to it that no other says something else."""
    usual = "schema.fields" if _part(raw, "schema") else "sink.table_mapping"
    return next(iter(_mappings(raw)), (usual, []))


def _columns(entries: list[tuple[str, str, _Object]]) -> list[tuple[str, ...]]:
    return sorted(
        tuple(str(entry.get(key)) for key in (named, "column_name", "column_type")) for _, named, entry in entries
    )


def _sink(raw: _Object, found: list[Problem]) -> _Object:
    sink = _part(raw, "sink")
    place, entries = _mapping_entries(raw)
    if not entries:
        found.append(Problem(place, _missing_mapping(raw, place)))
    return {
        **_kept(sink, "sink", "type"),
        "connection_params": _connection(sink, found),
        **_kept(sink, "sink", "table", "max_batch_size", "max_delay_time", "source_id"),
        "mapping": _At(place, [_mapping(raw, at, named, e, found) for at, named, e in entries] or _ABSENT),
    }


def _mapping(raw: _Object, at: str, named: str, entry: _Object, found: list[Problem]) -> _At:
    kept = _kept(entry, at, named, "column_name", "column_type")
    column_type = kept["column_type"]
    if isinstance(column_type.value, str):
        column_type = _At(column_type.path, with_usual_case(column_type.value))
    name = _joined_name(raw, at, named, entry, found) if _join_id(raw) else kept[named]
    return _At(at, {"name": name, "column_name": kept["column_name"], "column_type": column_type})


def _joined_name(raw: _Object, at: str, named: str, entry: _Object, found: list[Problem]) -> _At:
    """Give the name in the joined event of what a mapping writes: what `join.fields` says, else that of the column."""
    fields, name, owner = _items(_part(raw, "join"), "fields"), entry.get(named), entry.get("source_id")
    place = f"{at}.{named}"
    if not fields and not at.startswith("sink.mapping["):
        column = entry.get("column_name")
        return _At(f"{at}.column_name", _ABSENT if column is None else column)
    if at.startswith("sink.mapping[") or owner == _join_id(raw):
        return _At(place, _ABSENT if name is None else name)
    for output in fields:
        if (output.get("source_id"), output.get("name")) == (owner, name):
            return _At(place, output.get("output_name") or name)
    found.append(Problem(place, f"{name!r} of {owner!r} is not among join.fields; list it there"))
    return _At(place, name)


def _missing_mapping(raw: _Object, place: str) -> str:
    """Say what to write where no field has a column; GlassFlow too writes mapped columns only."""
    named = [
        entry.get("name")
        for topic in _topics(raw)
        for entry in (*_items(_part(topic, "schema"), "fields"), *_items(topic, "schema_fields"))
    ] + [entry.get("name") for entry in _items(_part(raw, "schema"), "fields")]
    names = [str(name) for name in named if name]
    first = names[0] if names else "id"
    if place == "schema.fields":
        example = f'"column_name": "{first}", "column_type": "String"'
        what = f"says no column; give each field that is to be written its own, such as {{{example}}}"
    else:
        topic = next((name for name in map(_topic_id, _topics(raw)) if name is not _ABSENT), "topic")
        example = f'"source_id": "{topic}", "field_name": "{first}", "column_name": "{first}", "column_type": "String"'
        what = f"is missing, so no column would be filled; add a list with one entry a field, such as {{{example}}}"
    return f"{what} (fields: {', '.join(names)})" if names else what


def _connection(sink: _Object, found: list[Problem]) -> _At:
    nested = _part(sink, "connection_params")
    parts = {}
    for key in _CONNECTION_KEYS:
        inside = nested.get(key) is not None
        if inside and sink.get(key) is not None and sink[key] != nested[key]:
            found.append(Problem(f"sink.{key}", f"differs from connection_params.{key}; keep one"))
        at = "sink.connection_params" if inside or (nested and sink.get(key) is None) else "sink"
        parts.update(_kept(nested if inside else sink, at, key))
    if isinstance(parts["password"].value, str):
        parts["password"] = _At(parts["password"].path, _password(parts["password"], found))
    return _At("sink.connection_params" if nested else "sink", parts)


def _password(given: _At, found: list[Problem]) -> Any:
    """Decode a password; a reference to a variable, and an empty one, stay what they are."""
    if holds_variable(given.value):
        return given.value
    remedy = "write the password in base64, or as ${VAR}, which is taken as it is"
    try:
        plain = base64.b64decode(given.value.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        found.append(Problem(given.path, f"is not base64, as passwords of v1 and v2 are; {remedy}"))
        return _ABSENT
    if VARIABLE.search(plain):
        found.append(Problem(given.path, "holds ${...} once decoded, which would be filled in; write it as ${VAR}"))
        return _ABSENT
    return plain


def _resources(raw: _Object, topics: list[tuple[str, _Object]]) -> _Object:
    """Move resources to v3's places; a join's have none there, since GlassFlow runs one replica of it."""
    old = _part(raw, "pipeline_resources")
    ingestor = _part(old, "ingestor")
    sources = []
    for index, (_, topic) in enumerate(topics):
        own = ingestor.get(_side(raw, topic, index)) or ingestor.get("base") or {}
        # One replica is what there is without a word.
        replicas = {"replicas": topic["replicas"]} if topic.get("replicas") not in (None, 1) else {}
        if own or replicas:
            sources.append({"source_id": _topic_id(topic), **replicas, **own})
    transform = old.get("transform")
    moved = {
        "nats": old.get("nats"),
        "sources": sources,
        "transform": [{"source_id": _topic_id(topic), **transform} for _, topic in topics] if transform else None,
        "sink": old.get("sink"),
    }
    return {key: value for key, value in moved.items() if value}


def _side(raw: _Object, topic: _Object, index: int) -> str:
    sides = {s.get("source_id"): s.get("orientation") for s in _items(_part(raw, "join"), "sources")}
    return str(sides.get(_topic_id(topic)) or ("left", "right")[min(index, 1)])


def _check_references(raw: _Object, topics: list[tuple[str, _Object]], found: list[Problem]) -> None:
    """Report what names a topic or transform that there is not, and what is said in two places."""
    transform = _part(raw, "stateless_transformation").get("id")
    (first, entries), others = _mapping_entries(raw), _mappings(raw)[1:]
    for place, other in others:
        if _columns(other) != _columns(entries):
            found.append(Problem(place, f"says other columns than {first}; keep one of them"))
    names = [*(_topic_id(topic) for _, topic in topics), transform, _join_id(raw)]
    known = [str(name) for name in names if name and name is not _ABSENT]
    for at, entry in _owned(raw):
        owner = entry.get("source_id")
        if owner is None and len(topics) > 1:
            found.append(Problem(f"{at}.source_id", f"is missing; use one of {', '.join(known)}"))
        elif owner is not None and owner not in known:
            found.append(Problem(f"{at}.source_id", f"no topic is called {owner!r}; {suggestion(owner, known)}"))
    for at, topic in topics:
        kind = _part(topic, "schema").get("type")
        if kind not in (None, "", "json"):
            found.append(Problem(f"{at}.schema.type", "must be 'json'"))


def _owned(raw: _Object) -> Iterable[tuple[str, _Object]]:
    for place, entries in (
        ("schema.fields", _items(_part(raw, "schema"), "fields")),
        ("sink.table_mapping", _items(_part(raw, "sink"), "table_mapping")),
    ):
        yield from ((f"{place}[{i}]", entry) for i, entry in enumerate(entries))
