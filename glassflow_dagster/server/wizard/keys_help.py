"""The keys of a definition with their types and meanings, from the schema that editors use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from glassflow_dagster.definition.schema import definition_schema

MOST_FOUND = 12


@dataclass(frozen=True)
class Key:
    """A key.

    path: such as `sink.mapping[].column_type`.
    type: in words.
    meaning: may be empty.
    """

    path: str
    type: str
    meaning: str
    required: bool


def find_keys(words: str) -> list[Key]:
    """Return the keys with all of these words in path or meaning, those with them in the path first."""
    wanted = words.lower().split()
    found = [key for key in _keys() if all(word in f"{key.path} {key.meaning}".lower() for word in wanted)]
    return sorted(found, key=lambda key: not all(word in key.path.lower() for word in wanted))[:MOST_FOUND]


@cache
def _keys() -> tuple[Key, ...]:
    schema = definition_schema()
    return tuple(_of_object(schema, schema["$defs"], ""))


def _of_object(part: Mapping[str, Any], parts: Mapping[str, Any], path: str, depth: int = 0) -> Iterator[Key]:
    for name, value in part.get("properties", {}).items():
        own = f"{path}.{name}" if path else name
        variants = [*_variants(value, parts)]
        kinds = dict.fromkeys(text for each in variants if (text := _kind(each)))
        meaning = value.get("description") or next((v["description"] for v in variants if "description" in v), "")
        yield Key(own, " or ".join(kinds), _first_sentence(meaning), name in part.get("required", ()))
        seen: set[str] = set()
        for variant in variants:
            is_list = variant.get("type") == "array"
            for inner in _variants(variant.get("items", {}), parts) if is_list else (variant,):
                below = own + "[]" * is_list
                if inner.get("properties") and depth < 5:  # noqa: PLR2004 - deeper than any definition
                    for key in _of_object(inner, parts, below, depth + 1):
                        if key.path not in seen:
                            seen.add(key.path)
                            yield key


def _variants(part: Any, parts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a value, references to parts resolved; not texts that stand for a variable."""
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name not in {"Reference", "NoJoin"}:
            yield from _variants(parts[name], parts)
        return
    alternatives = part.get("anyOf") or part.get("oneOf")
    if alternatives:
        for each in alternatives:
            yield from _variants(each, parts)
    else:
        yield part


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(map(str, part["enum"]))
    if "const" in part:
        return str(part["const"])
    kind = {"array": "list", "string": "text", "object": "object"}.get(str(part.get("type")), str(part.get("type", "")))
    return "" if kind == "null" else kind


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())
