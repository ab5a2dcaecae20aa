"""A definition as answers have it: v3, without secrets, with the keys that GlassFlow's clients expect."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.formats.upgrade import upgrade
from glassflow_dagster.definition.model.source import with_schema_fields
from glassflow_dagster.server.api.secrets import masked

_INGEST, _DEDUP, _JOIN, _BOTH = "Ingest Only", "Deduplication", "Join", "Join & Deduplication"


def as_v3(raw: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return a definition of any format as v3, its references not replaced; raises `DefinitionError`."""
    definition = dict(upgrade(file, dict(raw)).definition)
    if isinstance(definition.get("sources"), list):
        definition["sources"] = [with_schema_fields(source) for source in definition["sources"]]
    return definition


def public_form(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer for a v3 definition, which may be invalid: what is no object or list stays as it is."""
    answer = {"version": "v3", **masked(definition)}
    answer.setdefault("name", "")
    answer["metadata"] = {"tags": [], **_object(answer.get("metadata"))}
    if isinstance(answer.get("sources"), list):
        answer["sources"] = [_source(source) for source in answer["sources"]]
    if isinstance(answer.get("sink"), dict):
        answer["sink"] = _sink(answer["sink"])
    return answer


def transformation_type(definition: Mapping[str, Any]) -> str:
    """Return GlassFlow's word for what a pipeline does."""
    transforms = definition.get("transforms")
    has_dedup = any(
        isinstance(each, dict) and each.get("type") == "dedup"
        for each in (transforms if isinstance(transforms, list) else ())
    )
    if _object(definition.get("join")).get("enabled"):
        return _BOTH if has_dedup else _JOIN
    return _DEDUP if has_dedup else _INGEST


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _source(source: Any) -> Any:
    if not isinstance(source, dict) or not isinstance(source.get("connection_params"), dict):
        return source
    return {**source, "connection_params": {"protocol": "PLAINTEXT", **source["connection_params"]}}


def _sink(sink: dict[str, Any]) -> dict[str, Any]:
    """Return a sink whose ports are texts and which has a password, as GlassFlow's SDK requires."""
    connection = sink.get("connection_params")
    if not isinstance(connection, dict):
        return sink
    ports = {key: str(connection[key]) for key in ("port", "http_port") if connection.get(key) is not None}
    return {**sink, "connection_params": {"password": "", **connection, **ports}}
