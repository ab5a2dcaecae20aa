"""What it costs to remove duplicates in a query: FINAL on a ReplacingMergeTree, beside a table that is clean already.

Both tables get the same events in blocks: the ReplacingMergeTree all of them, of which a tenth repeat an earlier one,
and the clean table each key once, as a pipeline writes it. ClickHouse merges in the background as it likes. Then the
same queries run on both, by turns. Without FINAL the ReplacingMergeTree counts the duplicates that no merge has removed
yet (`surplus_rows`).

    make bench-final        or: python -m benchmarks.final --keys 1000000 --runs 1
"""

import time
from collections.abc import Callable

from clickhouse_connect.driver.client import Client

from benchmarks import results
from benchmarks.console import say
from benchmarks.results import Figures, Runs
from benchmarks.stack import running_stack

KEYS = (1_000_000, 10_000_000, 50_000_000)
BLOCK = 50_000
# Every tenth event repeats one of the earlier tenths, which are no repetitions themselves. The key is a hash, as random
# as a UUID.
_IS_REPEATED = "number % 10 = 9"
_EVENTS = (
    f"SELECT lower(hex(sipHash128(if({_IS_REPEATED}, cityHash64(number) % (intDiv(number, 10) + 1) * 10, number)))) "
    "AS id, "
    "concat('user-', toString(number % 10000)) AS user, number % 15 AS amount, number % 10000 / 100 AS price, "
    "toDateTime('2026-01-01 00:00:00') + intDiv(number, 1000) AS at FROM numbers({first:UInt64}, {count:UInt64})"
)
_COLUMNS = "id String, user String, amount Int32, price Float64, at DateTime"
_QUERIES = {
    "count": "SELECT count() FROM {table}",
    "sum_by_user": "SELECT user, sum(price) FROM {table} GROUP BY user ORDER BY user LIMIT 10",
    "one_hour": "SELECT count(), sum(price) FROM {table} WHERE at < '2026-01-01 01:00:00'",
}
CLEAN, REPLACING = "clean", "replacing"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("final")
    parser.add_argument("--keys", type=int, nargs="+", default=list(KEYS), help="rows of the clean table, about")
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        client = stack.client()
        for keys in arguments.keys:
            _fill(client, keys)
            cases: dict[str, Callable[[], Figures]] = {
                f"clean, {keys / 1e6:g} million": lambda: _measure(client, CLEAN),
                f"FINAL, {keys / 1e6:g} million": lambda: _measure(client, f"{REPLACING} FINAL"),
                f"without FINAL, {keys / 1e6:g} million": lambda: _measure(client, REPLACING),
            }
            for _ in range(arguments.runs):
                for case, measure in cases.items():
                    runs.measure(case, measure)
    runs.write(arguments.results, "final", {"block": BLOCK, "duplicates": 0.1})


def _fill(client: Client, keys: int) -> None:
    """Create both tables and insert about `keys` keys."""
    say(f"inserting {keys:,} keys into two tables ...")
    for table, engine in ((CLEAN, "MergeTree ORDER BY id"), (REPLACING, "ReplacingMergeTree ORDER BY id")):
        client.command(f"DROP TABLE IF EXISTS {table}")
        client.command(f"CREATE TABLE {table} ({_COLUMNS}) ENGINE = {engine}")
    for first in range(0, int(keys / 0.9), BLOCK):
        parameters = {"first": first, "count": BLOCK}
        client.command(f"INSERT INTO {REPLACING} {_EVENTS}", parameters=parameters)
        client.command(f"INSERT INTO {CLEAN} {_EVENTS} WHERE NOT ({_IS_REPEATED})", parameters=parameters)


def _measure(client: Client, table: str) -> Figures:
    """Run each query on a table; return how long it takes, and how many rows are counted beyond one for each key."""
    figures = {}
    for name, query in _QUERIES.items():
        began = time.monotonic()
        client.query(query.format(table=table))
        figures[f"milliseconds_{name}"] = (time.monotonic() - began) * 1000
    counted = client.query(f"SELECT count() FROM {table}").result_rows[0][0]
    keys = client.query(f"SELECT count() FROM {CLEAN}").result_rows[0][0]
    return {**figures, "surplus_rows": counted - keys}


if __name__ == "__main__":
    main()
