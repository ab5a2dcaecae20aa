"""The v3 definition while it is made of an older one: each part with the path that it had in the older file.

Whatever is found wrong with v3's form afterwards is told at the path that the file's author knows.
"""

from dataclasses import dataclass
from typing import Any

# An object as it was parsed.
Raw = dict[str, Any]
# Stands for a value that the older file leaves out.
ABSENT = object()


@dataclass(frozen=True)
class At:
    """A part of the v3 definition, and the path that it had in the older file; `ABSENT` is left out."""

    path: str
    value: Any


def keep(owner: Raw, at: str, *keys: str, empty: tuple[Any, ...] = (None,)) -> Raw:
    """Take keys that are called the same in v3; values in `empty` count as left out."""
    place = f"{at}." if at else ""
    return {
        key: At(place + key, ABSENT if (value := owner.get(key)) is None or value in empty else value) for key in keys
    }


def resolve(part: Any, path: str, origins: dict[str, str]) -> Any:
    """Give the plain value of a draft, and note in `origins` where its parts came from."""
    if isinstance(part, At):
        origins[path] = part.path
        return resolve(part.value, path, origins)
    if isinstance(part, dict):
        inner = {k: resolve(v, f"{path}.{k}" if path else str(k), origins) for k, v in part.items()}
        return {k: v for k, v in inner.items() if v is not ABSENT}
    if isinstance(part, list):
        return [resolve(v, f"{path}[{i}]", origins) for i, v in enumerate(part)]
    return part
