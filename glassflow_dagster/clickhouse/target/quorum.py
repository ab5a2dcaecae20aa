"""Whether rows that were inserted survive the loss of one replica.

ClickHouse answers an insert into a replicated table when one replica has the rows, unless the user's setting
`insert_quorum` asks for more; the others fetch them afterwards. Rows that were on one replica alone are lost with its
disk, and their insert token stays in Keeper, so that a repeated insert is dropped.
"""

from collections.abc import Sequence

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.tables import Table

_SETTING = "insert_quorum"
# Values with which an insert waits for no second replica.
_ALONE = frozenset({"0", "1"})


def rows_on_one_replica(client: Client, tables: Sequence[Table]) -> str:
    """Return a warning, '' if there is none, where the rows of inserts into the tables may be on one replica alone.

    Tables of SharedMergeTree keep their rows in a shared store.
    """
    replicated = [table.full_name for table in tables if table.engine.startswith("Replicated")]
    setting = client.server_settings.get(_SETTING)
    if not replicated or setting is None or setting.value not in _ALONE:
        return ""
    return (
        f"inserts into {', '.join(replicated)} wait for one replica only ({_SETTING} is {setting.value}): if its disk "
        "is lost before another replica has fetched the rows, they are lost, although the ledger counts them as "
        f"written; run ALTER USER ... SETTINGS {_SETTING} = 'auto' for the pipeline's user, or set it in its profile"
    )
