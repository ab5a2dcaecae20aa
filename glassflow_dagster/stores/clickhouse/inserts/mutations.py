"""Changes of a table's rows by others: mutations (ALTER TABLE ... DELETE, UPDATE; DELETE FROM) and lightweight updates.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

# Mutations that change no row, as the server formats them. Any other may, of versions to come, too.
_HARMLESS = re.compile(r"^\(?(?:MATERIALIZE|DROP|CLEAR) (?:INDEX|PROJECTION|STATISTICS|CONSTRAINT)\b")

# Seconds by which the time of a batch may be later than the server's clock says: mutations have whole seconds.
_TOLERANCE = 2

_QUERY = """
SELECT command FROM system.mutations
WHERE database = {database:String} AND table = {name:String} AND create_time >= toDateTime({since:Int64})
UNION ALL
SELECT 'UPDATE' FROM system.parts
WHERE database = {database:String} AND table = {name:String} AND startsWith(partition_id, 'patch-')
AND modification_time >= toDateTime({since:Int64}) LIMIT 1
"""


def changes_since(client: Client, database: str, table: str, since_ms: int) -> Sequence[str]:
    """Return the commands that may have changed or removed rows of a table since a time, in no particular order.

    since_ms: milliseconds since 1970 by the server's clock. A lightweight update is only known as `UPDATE`, by the part
    that it leaves until that is merged. Raises the client's own errors.
    """
    where = {"database": database, "name": table, "since": since_ms // 1000 - _TOLERANCE}
    commands = [str(command) for (command,) in client.query(_QUERY, parameters=where).result_rows]
    return [command.removeprefix("(").removesuffix(")") for command in commands if not _HARMLESS.match(command)]
