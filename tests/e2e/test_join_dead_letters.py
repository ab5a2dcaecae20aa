"""Errors after the join: a dead letter of the left event, which becomes a row by a replay after the fix."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.joins import LEFT, RIGHT, JoinPipeline
from tests.e2e.test_dead_letters import dead_letter_command, listed, verified
from tests.servers.stack import Stack
from tests.support.sending import Sender

HOUR = 3600


def set_up(stack: Stack, folder: Path, match: str) -> JoinPipeline:
    pipeline = JoinPipeline(
        folder, stack.kafka, stack.clickhouse_port, match=match, left_window=HOUR, right_window=HOUR
    )
    pipeline.at = "UInt8"
    pipeline.transforms = [{"type": "filter", "config": {"expression": "at != 3"}}]
    pipeline.write().create_topic()
    pipeline.client().command(f"CREATE DATABASE {pipeline.name}")
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.events (left_id String, at UInt8, right_id Nullable(String), "
        "CONSTRAINT small CHECK at < 100) ENGINE = MergeTree ORDER BY left_id"
    )
    return pipeline


def left(name: str, at: int, user: str | None = "u") -> tuple[str, Any]:
    return LEFT, {"id": name, "user": user, "at": at}


def fix(pipeline: JoinPipeline) -> None:
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events DROP CONSTRAINT small")
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events MODIFY COLUMN at UInt16")
    pipeline.at = "UInt16"
    pipeline.write()


@pytest.mark.usefixtures("shared_session")
def test_a_rejected_joined_row_is_a_dead_letter_and_is_written_once_after_a_replay(
    stack: Stack, tmp_path: Path
) -> None:
    pipeline = set_up(stack, tmp_path, "latest")
    right = (RIGHT, {"id": "r", "owner": "u", "at": 0})
    lefts = [left("good", 1), left("out", 3), left("too large", 300), left("refused", 200), left("nobody's", 1, "x")]
    pipeline.send_both([right, *lefts, lefts[2], (LEFT, b"{")])

    first = pipeline.catch_up()

    counts = {"read": 8, "written": 1, "duplicates": 1, "filtered": 1, "dead_letters": 3, "waiting": 1, "unmatched": 0}
    assert {name: first[name] for name in counts} == counts
    assert pipeline.rows() == {("good", "r"): 1}
    found = {dead_letter["stage"]: dead_letter for dead_letter in listed(pipeline)}
    assert sorted(found) == ["decode", "insert", "mapping"]
    for stage, event in (("mapping", lefts[2][1]), ("insert", lefts[3][1])):
        assert (json.loads(found[stage]["value"]), found[stage]["passed_dedup"]) == (event, True)
        assert found[stage]["topic"] == pipeline.topic(LEFT)
    assert "UInt8" in found["mapping"]["reason"]
    ledger = pipeline.join_ledger()
    assert (ledger["joined"], ledger["matched"], ledger["taken"], ledger["accepted"]) == (4, 4, 6, 1)
    figures = verified(pipeline)["counts"]["figures"]
    assert (figures["joined_filtered"], figures["joined_dead_letters"]) == (1, 2)

    fix(pipeline)
    assert "sent again: 3" in dead_letter_command(pipeline, "replay").stdout
    second = pipeline.catch_up()

    assert (second["read"], second["written"], second["dead_letters"], second["waiting"]) == (3, 2, 1, 1)
    assert pipeline.rows() == {("good", "r"): 1, ("too large", "r"): 1, ("refused", "r"): 1}
    assert verified(pipeline)["counts"]["passed"]


@pytest.mark.long
@pytest.mark.usefixtures("shared_session")
def test_of_several_pairs_the_refused_ones_are_not_sent_again(stack: Stack, tmp_path: Path) -> None:
    pipeline = set_up(stack, tmp_path, "all")
    rights = [(RIGHT, {"id": f"r{n}", "owner": "u", "at": n}) for n in range(3)]
    pipeline.send_both([*rights, left("good", 1), left("too large", 300)])

    first = pipeline.catch_up()

    assert (first["read"], first["written"], first["dead_letters"]) == (5, 3, 3)
    fix(pipeline)
    said = dead_letter_command(pipeline, "replay").stdout
    assert "sent again: 0" in said
    assert "skipped: 3 of single rows of a join (match: all)" in said
    assert verified(pipeline)["counts"]["passed"]


@pytest.mark.usefixtures("shared_session")
@pytest.mark.long
def test_each_side_of_a_join_may_have_several_topics(stack: Stack, tmp_path: Path) -> None:
    pipeline = set_up(stack, tmp_path, "latest")
    definition = yaml.safe_load(pipeline.file.read_text())
    other = {side: f"{pipeline.topic(side)}-more" for side in (LEFT, RIGHT)}
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in other.values()]).values():
        made.result(30)
    for source, side in zip(definition["sources"], (LEFT, RIGHT), strict=True):
        assert source.pop("topic") == pipeline.topic(side)
        source["topics"] = [pipeline.topic(side), other[side]]
    pipeline.file.write_text(yaml.safe_dump(definition))
    pipeline.send_both([(RIGHT, {"id": "r1", "owner": "u", "at": 0}), left("first", 1), left("across", 1, "v")])
    sender = Sender(stack.kafka)
    for side, event in ((RIGHT, {"id": "r2", "owner": "v", "at": 0}), left("second", 1), left("refused", 200)):
        sender.send(other[side], json.dumps(event))
    sender.send(other[LEFT], b"{")
    sender.flush()

    totals = pipeline.catch_up()

    assert (totals["read"], totals["written"], totals["dead_letters"]) == (7, 3, 2)
    assert pipeline.rows() == {("first", "r1"): 1, ("across", "r2"): 1, ("second", "r1"): 1}
    found = {dead_letter["stage"]: dead_letter["topic"] for dead_letter in listed(pipeline)}
    assert found == {"decode": other[LEFT], "insert": other[LEFT]}
    fix(pipeline)
    definition["sink"] = yaml.safe_load(pipeline.file.read_text())["sink"]
    pipeline.file.write_text(yaml.safe_dump(definition))
    dead_letter_command(pipeline, "replay", "--where", "stage = 'insert'")
    assert pipeline.catch_up()["written"] == 1
    assert pipeline.rows()["refused", "r1"] == 1
    assert verified(pipeline)["counts"]["passed"]


@pytest.mark.long
@pytest.mark.usefixtures("shared_session")
def test_a_joined_row_goes_to_each_table_and_is_not_sent_again_to_the_one_that_refused_it(
    stack: Stack, tmp_path: Path
) -> None:
    """The replayed left event would be joined once more, and written to its other tables, too."""
    pipeline = set_up(stack, tmp_path, "latest")
    definition = yaml.safe_load(pipeline.file.read_text())
    table = f"{pipeline.name}.large"
    routes = [{"table": table, "filter": "at > 10", "create_table": {"order_by": "left_id"}}]
    definition["sink"] |= {"match": "all", "filter": "true", "unrouted": "drop", "routes": routes}
    pipeline.file.write_text(yaml.safe_dump(definition))
    right = (RIGHT, {"id": "r", "owner": "u", "at": 0})
    pipeline.send_both([right, left("good", 1), left("large", 50), left("refused", 200), left("too large", 300)])

    totals = pipeline.catch_up()

    assert (totals["written"], totals["dead_letters"], totals["copies"]) == (4, 2, 2)
    assert pipeline.rows() == {("good", "r"): 1, ("large", "r"): 1}
    assert pipeline.query(f"SELECT left_id FROM {table} ORDER BY ALL") == [("large",), ("refused",)]
    assert verified(pipeline)["counts"]["passed"]
    said = dead_letter_command(pipeline, "replay").stdout
    assert "sent again: 1" in said
    assert "skipped: 1 of single rows of a join (match: all)" in said
