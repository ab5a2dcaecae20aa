"""From a topic to rows: the definition that `infer` prints runs unchanged and behaves as its comments say."""

import random
from typing import Any

from tests.e2e.support import Pipeline, cli


def order(number: int, generator: random.Random) -> dict[str, Any]:
    """Return an event with fields of many types."""
    event: dict[str, Any] = {
        "orderId": f"o{number}",
        "customer_id": generator.randrange(20),
        "total": generator.choice([3, 4.5]),
        "state": generator.choice(["new", "paid"]),
        "created_at": "2024-10-28T10:00:05.123Z",
        "day": "2024-10-28",
        "ts": 1_700_000_000 + number,
        "trace": f"6f9619ff-8b86-d011-b42d-{number:012x}",
        "big": 2**63 + number,
        "paid": number % 2 == 0,
        "tags": ["a", "b"],
        "user": {"name": None if number % 7 == 0 else "n", "home": {"zip": number}},
        "counts": {f"k{generator.randrange(5000)}": 1 for _ in range(3)},
        "dotted": {"x.y": 1},
        "odd: #'\"": number,
        "select": 1,
        "mixed": "x" if number % 50 == 0 else number,
    }
    if number % 9 == 0:
        del event["state"]
    return event


def test_the_definition_that_is_printed_runs_and_keeps_its_word(pipeline: Pipeline) -> None:
    generator = random.Random(20)
    orders = [order(number, generator) for number in range(300)]
    others = [b"x", None, b"[1]"]
    pipeline.create_topic(2)
    pipeline.send([*orders, *orders[:40], *others])
    url = f"http://127.0.0.1:{pipeline.clickhouse_port}/{pipeline.name}"
    inferred = cli("infer", pipeline.name, "--brokers", pipeline.brokers, "--clickhouse-url", url)
    assert inferred.code == 0, inferred.err
    said = " ".join(inferred.out.replace("#", "").split())
    assert "300 values in 340 events; 40 repeats, all of them copies of an earlier event" in said
    assert "333 number, 7 string: 7 become dead letters" in said
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(inferred.out)
    assert cli("validate", str(pipeline.file)).code == 0

    # One of the 6 orders with a text in `mixed` was sent twice: it is a dead letter each time, not a duplicate.
    totals = pipeline.catch_up()
    expected = {"read": 343, "written": 294, "duplicates": 39, "dead_letters": 7 + 3}
    assert {key: totals[key] for key in expected} == expected
    rows = pipeline.query(
        f"SELECT count(), uniqExact(orderId), countIf(state IS NULL), min(user_home_zip), max(big), min(ts), "
        f"any(created_at), uniqExact(trace) FROM {{db}}.{pipeline.name}"
    )
    [(count, keys, no_state, first_zip, biggest, first_time, created, traces)] = rows
    assert (count, keys, traces) == (294, 294, 294)
    # Every ninth order has no state; the first one is a dead letter.
    assert (no_state, first_zip, biggest) == (33, 1, 2**63 + 299)
    assert (str(first_time), str(created)) == ("2023-11-14 22:13:21", "2024-10-28 10:00:05.123000")
    same = cli("table", str(pipeline.file), "--diff")
    assert (same.code, same.out) == (0, "")
