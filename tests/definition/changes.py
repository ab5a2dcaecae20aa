"""Definitions that differ from a valid one in a few keys."""

import copy
from typing import Any


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Copy a definition and set values by path; `__` in a keyword stands for the path's dot, None removes the key."""
    definition = copy.deepcopy(base)
    for path, value in changes.items():
        place: Any = definition
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        for part in parents:
            place = place[part]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return definition
