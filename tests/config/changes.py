"""Definitions that differ from a good one in a place or two."""

import copy
from typing import Any


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Copy a definition and set values; dots of their paths are written __, None removes."""
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
