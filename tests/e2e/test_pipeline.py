"""The main case on real servers: duplicates are removed, and no other event is lost."""

import json
import random
import time
from pathlib import Path

from glassflow_dagster.local.demo.events import SMS_EVENTS, SMS_TOPIC
from glassflow_dagster.local.demo.produce import create_topic, send
from tests.e2e.support import Pipeline, cli
from tests.servers.stack import Stack


def test_the_articles_five_events_give_its_two_rows(stack: Stack, tmp_path: Path) -> None:
    create_topic(stack.kafka, SMS_TOPIC)
    send(stack.kafka, SMS_TOPIC, (json.dumps(event).encode() for event in SMS_EVENTS), 7, lambda _: None)

    done = cli(
        "run", "pipelines/sms_status.yaml", "--until-caught-up", "--state", str(tmp_path), environment=stack.environment
    )

    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {
        "read": 5, "copies": 0, "written": 2, "duplicates": 3,
        "filtered": 0, "dead_letters": 0, "unmatched": 0, "late": 0, "waiting": 0,
    }  # fmt: skip
    client = Pipeline(tmp_path, stack.kafka, stack.clickhouse_port).client()
    rows = client.query(
        "SELECT sms_id, status, toString(updated_at), recipient FROM analytics.sms_statuses_latest ORDER BY sms_id"
    ).result_rows
    assert [tuple(row) for row in rows] == [
        ("a1b2-c3d4", "DELIVERED", "2024-10-28 10:00:05", "+15551234567"),
        ("e5f6-g7h8", "DELIVERED", "2024-10-28 10:00:06", "+15557654321"),
    ]


def test_ten_thousand_events_with_duplicates_within_and_across_batches_and_partitions(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    draw = random.Random(11)
    first = [{"id": f"k{index}", "n": index} for index in range(6000)]
    within = draw.sample(first, 1000)
    later = [{"id": f"k{index}", "n": index} for index in range(6000, 8000)]
    across = draw.sample(first, 1000)
    partitions = [draw.randrange(2) for _ in range(10_000)]

    assert pipeline.send(first + within, lambda index: partitions[index]) == 7000
    one = pipeline.catch_up()
    assert pipeline.send(across + later, lambda index: partitions[index]) == 3000
    # As on a host with more cores: the state keeps its number of partitions.
    other = pipeline.catch_up(spark={"spark.sql.shuffle.partitions": "5"})

    assert (one["read"], one["written"], one["duplicates"]) == (7000, 6000, 1000)
    assert (other["read"], other["written"], other["duplicates"]) == (3000, 2000, 1000)
    assert pipeline.query("SELECT count(), uniqExact(id), sum(n) FROM {db}.events") == [(8000, 8000, sum(range(8000)))]
    assert pipeline.ledger() == {
        "read": 10_000, "written": 8000, "duplicates": 2000,
        "dead_letters": 0, "filtered": 0, "late": 0, "unmatched": 0,
    }  # fmt: skip
    largest = pipeline.query("SELECT max(written / blocks) FROM {db}.glassflow_ledger")[0][0]
    assert largest <= 1000  # max_batch_size


def test_the_first_event_of_a_key_is_the_one_that_stays(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}, {"id": "a", "n": 2}, {"id": "a", "n": 3}], lambda _: 1)
    pipeline.send([{"id": "a", "n": 4}], lambda _: 0)
    pipeline.catch_up()
    # The least (topic, partition, offset), independently of the time of sending.
    assert pipeline.query("SELECT n FROM {db}.events") == [(4,)]


def test_a_key_passes_again_once_its_window_is_over_also_after_silence_and_restart(pipeline: Pipeline) -> None:
    pipeline.window = "3s"
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    pipeline.catch_up()
    accepted = pipeline.query("SELECT toUnixTimestamp64Milli(max(batch_time)) FROM {db}.glassflow_ledger")[0][0]
    while time.time() * 1000 < accepted + 3000:
        time.sleep(0.1)
    pipeline.send([{"id": "a", "n": 2}])
    pipeline.catch_up()
    assert pipeline.query("SELECT n FROM {db}.events ORDER BY n") == [(1,), (2,)]


def test_poison_among_good_messages_becomes_dead_letters_with_all_that_is_known(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    poison = [b"not json", b"\xff\xfe", None, {"id": "x"}, {"id": "y", "n": "7"}, {"id": "z", "n": 2**31}]
    pipeline.send([{"id": "a", "n": 1}, *poison, {"id": "x", "n": 2}], lambda _: 0)

    totals = pipeline.catch_up()

    assert (totals["read"], totals["written"], totals["dead_letters"]) == (8, 2, 6)
    # The invalid record with key x did not claim the key.
    assert pipeline.query("SELECT id, n FROM {db}.events ORDER BY id") == [("a", 1), ("x", 2)]
    dead_letters = pipeline.query(
        "SELECT topic, partition, offset, stage, reason, hex(value), key, headers "
        "FROM {db}.glassflow_dead_letters ORDER BY offset"
    )
    assert [dead_letter[2] for dead_letter in dead_letters] == [1, 2, 3, 4, 5, 6]
    assert {(dead_letter[0], dead_letter[1], dead_letter[6]) for dead_letter in dead_letters} == {
        (pipeline.name, 0, "k")
    }
    assert [dead_letter[3] for dead_letter in dead_letters] == ["decode"] * 5 + ["mapping"]
    assert dead_letters[0][4].startswith("invalid JSON")
    assert dead_letters[0][5] == b"not json".hex().upper()
    assert dead_letters[1][5] == "FFFE"
    assert dead_letters[2][4:6] == ("the record has no value", None)
    assert dead_letters[3][4] == "field 'n' is missing"
    assert dead_letters[4][4] == "field 'n': expected int, got string"
    assert dead_letters[5][4] == "column 'n' (Int32): 2147483648 is out of range -2147483648..2147483647"
    assert list(dead_letters[0][7]) == [{"name": "h", "value": "1"}]


def test_filtered_events_are_counted_and_claim_no_key_and_expressions_fill_the_columns(pipeline: Pipeline) -> None:
    pipeline.transforms = [
        {"type": "filter", "config": {"expression": "n > 10 / 2"}},
        {
            "type": "stateless",
            "config": {
                "transforms": [
                    {"expression": "upper(id)", "output_name": "id", "output_type": "string"},
                    {"expression": "toInt(100 / (n - 7))", "output_name": "n", "output_type": "int"},
                ]
            },
        },
    ]
    pipeline.write().create_topic()
    events = [{"id": "a", "n": 1}, {"id": "a", "n": 8}, {"id": "a", "n": 8}, {"id": "b", "n": 7}, {"id": "b", "n": 57}]
    pipeline.send([*events, b"poison", *({"id": "c", "n": 0} for _ in range(3000))], lambda _: 0)

    totals = pipeline.catch_up()

    counted = {name: totals[name] for name in ("read", "written", "duplicates", "filtered", "dead_letters")}
    assert counted == {"read": 3006, "written": 2, "duplicates": 1, "filtered": 3001, "dead_letters": 2}
    assert pipeline.query("SELECT id, n FROM {db}.events ORDER BY id") == [("A", 100), ("B", 2)]
    dead_letters = pipeline.query("SELECT offset, stage, reason FROM {db}.glassflow_dead_letters ORDER BY offset")
    assert dead_letters[0] == (3, "transform", "output 'n', toInt(100 / (n - 7)): 100 / (n - 7): division by zero")
    assert dead_letters[1][:2] == (5, "decode")
    assert pipeline.ledger()["filtered"] == 3001


def test_an_empty_topic_ends_with_zeros(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    assert set(pipeline.catch_up().values()) == {0}
    assert pipeline.query("SELECT count() FROM {db}.events") == [(0,)]


def test_a_composite_key_of_texts_and_numbers(pipeline: Pipeline) -> None:
    pipeline.keys = ["id", "n"]
    pipeline.write().create_topic()
    pipeline.send([{"id": "a1", "n": 2}, {"id": "a", "n": 12}, {"id": "a", "n": 12}, {"id": "a", "n": -12}])
    assert pipeline.catch_up()["written"] == 3


def test_without_deduplication_every_event_arrives(pipeline: Pipeline) -> None:
    pipeline.write(dedup=False).create_topic()
    pipeline.send([{"id": "a", "n": 1}] * 5 + [b"poison"])
    totals = pipeline.catch_up()
    assert (totals["read"], totals["written"], totals["duplicates"], totals["dead_letters"]) == (6, 5, 0, 1)
