"""The draft of a v3 definition that is made from an older one: each part with its path in the older file.

So a problem of the v3 form can be reported at the path that the author of the file knows.
"""

from dataclasses import dataclass
from typing import Any

# A parsed object of a definition.
Raw = dict[str, Any]
# Marks a value that the older file leaves out, and that v3 then leaves out too.
ABSENT = object()


@dataclass(frozen=True)
class WithOrigin:
    """A part of the v3 draft with its path in the older file. value: may hold further parts, or be `ABSENT`."""

    path: str
    value: Any


def keep(owner: Raw, path: str, *keys: str, empty: tuple[Any, ...] = (None,)) -> Raw:
    """Return the given keys of an object for the v3 draft: key -> its value, with its path in the older file.

    path: of the object; empty for the whole file. A key that is missing, null, or has one of the `empty` values is
    `ABSENT`.
    """
    prefix = f"{path}." if path else ""
    return {
        key: WithOrigin(prefix + key, ABSENT if (value := owner.get(key)) is None or value in empty else value)
        for key in keys
    }


def resolve(part: Any, path: str, origins: dict[str, str]) -> Any:
    """Return a part of the draft as plain objects and lists, without the entries of objects that are `ABSENT`.

    path: of the part in v3.
    origins: receives v3 path -> path in the older file, for every part that has one.
    """
    if isinstance(part, WithOrigin):
        origins[path] = part.path
        return resolve(part.value, path, origins)
    if isinstance(part, dict):
        inner = {key: resolve(value, f"{path}.{key}" if path else str(key), origins) for key, value in part.items()}
        return {key: value for key, value in inner.items() if value is not ABSENT}
    if isinstance(part, list):
        return [resolve(value, f"{path}[{i}]", origins) for i, value in enumerate(part)]
    return part
