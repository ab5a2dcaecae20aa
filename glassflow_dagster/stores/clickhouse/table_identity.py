"""What tells a table from another one of the same name, and from itself before it was altered.

Insert tokens belong to a table, not to its name: EXCHANGE TABLES, RENAME, or DROP and CREATE put a table in its place
that does not know them, and a window of tokens that was switched off and on again is empty.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re

from pydantic import BaseModel

# Columns of system.tables for `TableIdentity.of`.
IDENTITY_COLUMNS = "toString(uuid), toUnixTimestamp(metadata_modification_time), engine_full"

_WINDOW = re.compile(r"\b(?:non_)?replicated_deduplication_window = '?[1-9]")


class TableIdentity(BaseModel):
    """A table at a moment: its UUID, when it was last altered (seconds since 1970), whether it sets a token window.

    In a database without UUIDs and times (engine Memory or Overlay) only the window tells a table from another one.
    """

    uuid: str
    altered: int
    has_window: bool

    @classmethod
    def of(cls, uuid: str, altered: int, engine_full: str) -> "TableIdentity":
        """Return the identity from a row of `IDENTITY_COLUMNS`."""
        return cls(uuid=uuid, altered=altered, has_window=_WINDOW.search(engine_full) is not None)
