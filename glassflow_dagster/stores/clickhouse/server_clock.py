"""The clock of a ClickHouse server, by which those of the drivers' hosts are checked."""

import time

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.queries import fetch


def server_lead_ms(client: Client) -> int:
    """Return by how many milliseconds the server's clock is ahead of this machine's; raises what `fetch` raises."""
    ((server_ms,),) = fetch(client, "SELECT toUnixTimestamp64Milli(now64(3))")
    return int(server_ms) - round(time.time() * 1000)
