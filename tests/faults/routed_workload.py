"""The deduplicated events in three tables, each of which rejects some of its rows."""

from collections.abc import Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from tests.faults.dedup_workload import WINDOW, DedupWorkload

# Table -> the rows that it must have, as SQL; the routes' conditions say the same.
_TABLES = {"odd": "n % 2 != 0", "tens": "n % 10 = 0", "events": "n % 2 = 0 AND n % 10 != 0"}


class RoutedWorkload(DedupWorkload):
    """Events for a pipeline with two routes; what neither takes goes to the sink's own table."""

    own_rows = "all_rows"
    refused_numbers = (-1, -2, -10)  # one for each table

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        made["sink"]["routes"] = [
            {"table": "odd", "filter": "n % 2 != 0"}, {"table": "tens", "filter": "n % 10 == 0"}
        ]  # fmt: skip
        return made

    def tables(self) -> Sequence[str]:
        columns = "id String, n Int32, text String, CONSTRAINT positive CHECK n >= 0"
        tables = (f"CREATE TABLE {self.name}.{table} ({columns}) ENGINE = MergeTree ORDER BY id" for table in _TABLES)
        rows = " UNION ALL ".join(f"SELECT id, n, text FROM {self.name}.{table}" for table in _TABLES)
        return [
            f"CREATE DATABASE {self.name}",
            *(f"{statement} {WINDOW}" for statement in tables),
            f"CREATE VIEW {self.name}.{self.own_rows} AS {rows}",
        ]

    def differences(self, client: Client) -> list[str]:
        strange = {
            table: client.query(f"SELECT count() FROM {self.name}.{table} WHERE NOT ({rows})").result_rows[0][0]
            for table, rows in _TABLES.items()
        }
        return [f"{table} has {count} rows of another table" for table, count in strange.items() if count]
