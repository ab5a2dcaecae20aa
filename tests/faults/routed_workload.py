"""The deduplicated events in three tables, each in one of them or in all that take it; tables reject some rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from tests.faults.dedup_workload import WINDOW, DedupWorkload
from tests.faults.records import Expected, Position, Record

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


# Table -> the rows of `events` that it must have, too, as SQL.
_FURTHER_TABLES = {"odd": "n % 2 != 0", "tens": "n % 10 = 0"}


class CopiedWorkload(DedupWorkload):
    """Events for a pipeline whose own table takes all of them, and rejects some; routes take some of them, too."""

    refused_numbers = (-1, -2, -10)  # odd, in no other table, and a ten

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        made["sink"] |= {
            "match": "all",
            "filter": "true",
            "unrouted": "drop",
            "routes": [{"table": "odd", "filter": "n % 2 != 0"}, {"table": "tens", "filter": "n % 10 == 0"}],
        }
        return made

    def tables(self) -> Sequence[str]:
        columns = "id String, n Int32, text String"
        further = (f"CREATE TABLE {self.name}.{table} ({columns}) ENGINE = MergeTree ORDER BY id {WINDOW}"
                   for table in _FURTHER_TABLES)  # fmt: skip
        return [*super().tables(), *further]

    def expected(self, records: Sequence[Record], times: Mapping[Position, int]) -> Expected:
        found = super().expected(records, times)
        for record in records:
            accepted = found.fates[record.position] == "written" or found.dead_letters.get(record.place()) == "insert"
            if accepted:
                [(_, event)] = self.decoded(record)
                number = event["n"]
                found.further[record.position] = ["written"] * ((number % 2 != 0) + (number % 10 == 0))
        found.sums["copies"] = sum(len(outcomes) for outcomes in found.further.values())
        found.sums["written"] += found.sums["copies"]
        return found

    def differences(self, client: Client) -> list[str]:
        wrong = []
        for table, rows in _FURTHER_TABLES.items():
            name = f"{self.name}.{table}"
            # What the own table has rejected is not there.
            of_own = f"SELECT id, n, text FROM {self.name}.events WHERE {rows}"
            questions = {
                "of another table": f"SELECT count() FROM {name} WHERE NOT ({rows})",
                "twice": f"SELECT count() - uniqExact(id) FROM {name}",
                "missing": f"SELECT count() FROM ({of_own} EXCEPT SELECT id, n, text FROM {name})",
                "too many": f"SELECT count() FROM (SELECT id, n, text FROM {name} WHERE n >= 0 EXCEPT {of_own})",
            }
            found = {what: client.query(query).result_rows[0][0] for what, query in questions.items()}
            wrong += [f"{table}: {count} rows {what}" for what, count in found.items() if count]
        return wrong
