"""The deduplicated events in a table with partitions, defaults, a view, a TTL, long keys, and a second writer."""

import time
from collections.abc import Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from tests.faults.dedup_workload import WINDOW, DedupWorkload, sink_of

_OTHERS = 3  # equal blocks that another writer sends in each repetition


class TableWorkload(DedupWorkload):
    """Events for a table that is partitioned by a default from the server's clock, and has an aggregating view.

    The table rejects some events by a constraint, and some by an expression that throws.
    """

    own_rows = "events WHERE NOT startsWith(id, 'other')"
    window_seconds = 3  # so short that windows end during a repetition
    prefix = "customer-00000000-0000-0000-0000-"  # long enough that the state stores a digest of the key
    refused_numbers = (-1, -7)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._others = 0

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        columns = {"id": "String", "n": "Int32", "text": "String"}
        made = super().definition(brokers, clickhouse_port)
        made["sink"] = sink_of(self.name, clickhouse_port, 100, columns)
        made["checks"] = {"other_writers": True}
        return made

    def tables(self) -> Sequence[str]:
        columns = (
            "id String, n Int32, text String, ingested_at DateTime DEFAULT now(), tenth Int32 MATERIALIZED "
            "intDiv(n, n + 7), CONSTRAINT positive CHECK n != -1, INDEX by_n n TYPE minmax"
        )
        partitions = "PARTITION BY (toStartOfMinute(ingested_at), n % 3) TTL ingested_at + INTERVAL 1 DAY"
        view = f"SELECT n % 5 AS digit, count() AS rows FROM {self.name}.events GROUP BY digit"
        sums = "ENGINE = SummingMergeTree ORDER BY digit PARTITION BY digit % 2"
        return [
            f"CREATE DATABASE {self.name}",
            f"CREATE TABLE {self.name}.events ({columns}) ENGINE = MergeTree ORDER BY id {partitions} {WINDOW}",
            f"CREATE TABLE {self.name}.sums (digit Int32, rows UInt64) {sums} {WINDOW}",
            f"CREATE MATERIALIZED VIEW {self.name}.sums_view TO {self.name}.sums AS {view}",
        ]

    def write_concurrently(self, client: Client, number: int) -> None:
        """Send equal blocks as another writer; none of them may be deduplicated."""
        for _ in range(_OTHERS):
            client.insert(
                f"{self.name}.events", [[f"other {number}", number, ""]], ["id", "n", "text"],
                settings={"deduplicate_insert": "disable"},
            )  # fmt: skip
            self._others += 1
            time.sleep(0.1)

    def differences(self, client: Client) -> list[str]:
        others = f"SELECT count() FROM {self.name}.events WHERE startsWith(id, 'other')"
        sums = f"SELECT digit, sum(rows) FROM {self.name}.sums GROUP BY digit ORDER BY digit"
        counts = f"SELECT n % 5 AS digit, count() FROM {self.name}.events GROUP BY digit ORDER BY digit"
        wrong = []
        if (found := client.query(others).result_rows[0][0]) != self._others:
            wrong.append(f"rows of the other writer: {found}, not {self._others}")
        if (found := client.query(sums).result_rows) != (must := client.query(counts).result_rows):
            wrong.append(f"the view's sums: {found}, not {must}")
        return wrong
