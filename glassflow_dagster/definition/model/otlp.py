"""The fields of OpenTelemetry's signals, which a definition does not declare, and GlassFlow's paths for keys of them.

A source of the type `otlp.traces` (`otlp.logs`, `otlp.metrics`) has the fields that GlassFlow's receiver flattens a
request to. An attribute is a field, too, if the mapping or a key names it: `resource_attributes.service.name`.
"""

import re
from collections.abc import Iterator
from typing import Any

SignalName = str  # logs, metrics or traces
TYPE_PREFIX = "otlp."
FORMATS = ("otlp_proto", "otlp_json")

_SCOPE = (
    ("resource_attributes", "map"), ("scope_name", "string"), ("scope_version", "string"), ("scope_attributes", "map"),
    ("attributes", "map"),
)  # fmt: skip
_LOGS = (
    ("timestamp", "string"), ("observed_timestamp", "string"), ("severity_number", "uint"),
    ("severity_text", "string"), ("body", "string"), ("trace_id", "string"), ("span_id", "string"), ("flags", "uint"),
    ("dropped_attributes_count", "uint"), *_SCOPE,
)  # fmt: skip
_TRACES = (
    ("trace_id", "string"), ("span_id", "string"), ("parent_span_id", "string"), ("trace_state", "string"),
    ("flags", "uint"), ("name", "string"), ("kind", "string"), ("start_timestamp", "string"),
    ("end_timestamp", "string"), ("duration_ns", "uint"), ("status_code", "string"), ("status_message", "string"),
    ("dropped_attributes_count", "uint"), ("dropped_events_count", "uint"), ("dropped_links_count", "uint"),
    ("events", "array"), ("links", "array"), *_SCOPE,
)  # fmt: skip
_METRICS = (
    ("timestamp", "string"), ("start_timestamp", "string"), ("metric_name", "string"),
    ("metric_description", "string"), ("metric_unit", "string"), ("metric_type", "string"),
    ("aggregation_temporality", "string"), ("is_monotonic", "bool"), ("flags", "uint"), ("value_double", "float"),
    ("value_int", "int"), ("count", "uint"), ("sum", "float"), ("min", "float"), ("max", "float"),
    ("bucket_counts", "array"), ("explicit_bounds", "array"), *_SCOPE,
)  # fmt: skip
FIELDS: dict[SignalName, tuple[tuple[str, str], ...]] = {"logs": _LOGS, "metrics": _METRICS, "traces": _TRACES}
# The fields that are null in events of some kinds of metrics; all others are in every event.
_OPTIONAL = frozenset({
    "aggregation_temporality", "is_monotonic", "value_double", "value_int", "count", "sum", "min", "max",
})  # fmt: skip
_ATTRIBUTES = tuple(name for name, kind in _SCOPE if kind == "map")

# A key's part in gjson's multipaths: perhaps a name in quotes, then a path, whose points inside a name are escaped.
_PART = re.compile(r'\s*(?:"[^"]*"\s*:)?\s*((?:[\w.$/:-]|\\.)+)\s*')


def signal_of(source_type: Any) -> SignalName | None:
    """Return the signal of a source's type, in any case; None for another type."""
    signal = str(source_type).lower().removeprefix(TYPE_PREFIX)
    return signal if str(source_type).lower().startswith(TYPE_PREFIX) and signal in FIELDS else None


def attribute_path(name: str) -> list[str]:
    """Return where a field of an event is: the path to an attribute, whose name may hold points, else the name."""
    owner, point, attribute = name.partition(".")
    return [owner, attribute] if point and owner in _ATTRIBUTES else [name]


def complete(definition: Any) -> Any:
    """Return a definition with the fields, the format and the key's fields of its OTLP source.

    definition: of v3, before the models have validated it; returned unchanged where it has no such source.
    """
    sources = definition.get("sources") if isinstance(definition, dict) else None
    if not isinstance(sources, list | tuple) or not any(_is_otlp(source) for source in sources):
        return definition
    transforms = definition.get("transforms")
    if isinstance(transforms, list | tuple):
        ids = [source.get("source_id") for source in sources if _is_otlp(source)]
        definition = {**definition, "transforms": [_with_keys(transform, ids) for transform in transforms]}
    attributes = list(dict.fromkeys(_attributes(definition)))
    completed = [_with_fields(source, attributes) if _is_otlp(source) else source for source in sources]
    return {**definition, "sources": completed}


def fields_of(signal: SignalName, attributes: list[str]) -> list[dict[str, Any]]:
    """Return the fields of a signal's events as schema_fields. attributes: the names of attributes that are fields.

    A missing attribute is an empty text, as in GlassFlow.
    """
    fixed = [
        {"name": name, "type": kind, **({"required": False} if name in _OPTIONAL else {})}
        for name, kind in FIELDS[signal]
    ]
    return [*fixed, *({"name": name, "type": "string", "default": ""} for name in attributes)]


def _is_otlp(source: Any) -> bool:
    return isinstance(source, dict) and signal_of(source.get("type")) is not None


def _with_fields(source: dict[str, Any], attributes: list[str]) -> dict[str, Any]:
    """Return an OTLP source with the keys that its type decides; other values for them are reported by the rules."""
    signal = signal_of(source["type"])
    assert signal is not None
    return {
        **source,
        "format": source.get("format") or FORMATS[0],
        "schema_fields": source.get("schema_fields") or fields_of(signal, attributes),
    }


def _attributes(definition: dict[str, Any]) -> Iterator[str]:
    """Yield the attributes that the tables' mappings and the keys name."""
    for name in (*_mapped(definition.get("sink")), *_keys(definition.get("transforms"))):
        if isinstance(name, str) and len(attribute_path(name)) > 1:
            yield name


def _mapped(sink: Any) -> Iterator[Any]:
    if not isinstance(sink, dict):
        return
    for entry in sink.get("mapping") or ():
        yield entry.get("name") if isinstance(entry, dict) else None
    for route in sink.get("routes") or ():
        yield from _mapped(route)


def _keys(transforms: Any) -> Iterator[Any]:
    for transform in transforms if isinstance(transforms, list) else ():
        config = transform.get("config") if isinstance(transform, dict) else None
        if isinstance(config, dict):
            yield config.get("key")
            yield from config.get("keys") or ()


def _with_keys(transform: Any, source_ids: list[Any]) -> Any:
    """Return a deduplication of an OTLP source with the fields that GlassFlow's path for its key names."""
    config = transform.get("config") if isinstance(transform, dict) else None
    if not isinstance(config, dict) or transform.get("source_id") not in source_ids or config.get("keys"):
        return transform
    keys = _parts(config.get("key"))
    if not keys:
        return transform
    rest = {key: value for key, value in config.items() if key != "key"}
    return {**transform, "config": {**rest, **({"key": keys[0]} if len(keys) == 1 else {"keys": keys})}}


def _parts(key: Any) -> list[str]:
    """Return the fields of a path of gjson's, such as `{"trace_id":trace_id,"span_id":span_id}`; [] for none."""
    if not isinstance(key, str):
        return []
    text = key.strip()
    is_multipath = (text[:1], text[-1:]) in (("{", "}"), ("[", "]"))
    found = [_PART.fullmatch(part) for part in (text[1:-1].split(",") if is_multipath else [text])]
    return [re.sub(r"\\(.)", r"\1", match[1]) for match in found if match] if all(found) else []
