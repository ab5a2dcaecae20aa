"""What a released version has left (`archive.py`) is continued by the code of today, exactly."""

import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, up
from tests.e2e.support import cli
from tests.upgrades import kept

pytestmark = [pytest.mark.servers, pytest.mark.long]

ARCHIVES = {file.name.removesuffix(".tar.xz"): file for file in Path(__file__).parent.glob("*.tar.xz")}


@dataclass
class Left:
    """A released version's folder, and the servers that run on its data."""

    folder: Path
    kafka: str
    clickhouse_port: int

    @property
    def client(self) -> Client:
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse_port)

    def command(self, *words: str) -> str:
        """Run a command of the program of today that must succeed; return its output."""
        environment = {
            "GLASSFLOW_KAFKA_BROKERS": self.kafka,
            "GLASSFLOW_CLICKHOUSE_URL": f"http://default:@127.0.0.1:{self.clickhouse_port}",
        }
        done = cli(*words, environment=environment)
        assert done.code == 0, done.err
        return done.out

    def catch_up(self, pipeline: str) -> dict[str, int]:
        state = str(self.folder / ".glassflow" / "state")
        done = self.command("run", str(self._file(pipeline)), "--until-caught-up", "--state", state)
        totals: dict[str, int] = json.loads(done.splitlines()[-1])
        return totals

    def send(self, topic: str, events: Iterable[kept.Event]) -> None:
        kept.send(self.kafka, topic, events)

    def of_pipelines(self, *words: str, pipeline: str) -> str:
        """Run a command on a pipeline by its name."""
        return self.command(*words, pipeline, "--pipelines", str(self.folder / "pipelines"))

    def query(self, text: str) -> list[Any]:
        return [*self.client.query(text).result_rows]

    def _file(self, pipeline: str) -> Path:
        return self.folder / "pipelines" / f"{pipeline}.yaml"


@pytest.fixture(params=ARCHIVES.values(), ids=ARCHIVES.keys())
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Left]:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    kafka_port, clickhouse_port = free_port(), free_port()
    up(tmp_path / "stack", kafka_port, clickhouse_port, print)
    try:
        yield Left(tmp_path, f"127.0.0.1:{kafka_port}", clickhouse_port)
    finally:
        down(tmp_path / "stack", print)


def test_an_open_batch_is_completed_and_no_key_is_forgotten(left: Left) -> None:
    before = left.query(f"SELECT count() FROM {kept.DATABASE}.events")[0][0]
    sent = [kept.event(number) for number in range(kept.ALL)]
    expected = {(e["id"], e["n"], e.get("note")) for e in sent if e["n"] not in {kept.FILTERED, kept.REFUSED}}
    assert before < len(expected)

    left.catch_up(kept.EVENTS)
    rows = left.query(f"SELECT id, n, note FROM {kept.DATABASE}.events")
    assert (len(rows), {*rows}) == (len(expected), expected)
    left.of_pipelines("verify", pipeline=kept.EVENTS)

    left.send("kept.events", sent)
    totals = left.catch_up(kept.EVENTS)
    assert (totals["read"], totals["duplicates"], totals["filtered"]) == (kept.ALL, kept.ALL - 1, 1)

    left.client.command(f"ALTER TABLE {kept.DATABASE}.events DROP CONSTRAINT c")
    left.of_pipelines("dead-letters", "replay", "--where", "stage = 'insert'", pipeline=kept.EVENTS)
    assert left.catch_up(kept.EVENTS)["written"] == 1
    refused = kept.event(kept.REFUSED)
    assert left.query(f"SELECT id, n FROM {kept.DATABASE}.events WHERE n = {kept.REFUSED}") == [
        (refused["id"], refused["n"])
    ]
    left.of_pipelines("verify", pipeline=kept.EVENTS)


def test_waiting_events_of_a_join_find_their_partners(left: Left) -> None:
    left.send("kept.users", kept.USERS[kept.KNOWN :])
    left.catch_up(kept.ORDERS)
    # With a batch that moves the watermark, and one that finds it moved.
    for days in (1, 2):
        order, user = kept.behind_the_hour(days)
        left.send("kept.orders", [order])
        left.send("kept.users", [user])
        left.catch_up(kept.ORDERS)
    rows = left.query(f"SELECT order_id, name FROM {kept.DATABASE}.orders WHERE NOT startsWith(order_id, 'day')")
    names = {user["user_id"]: user["name"] for user in kept.USERS}
    assert sorted(rows) == sorted((order["order_id"], names[order["user_id"]]) for order in kept.ORDERED)
    left.of_pipelines("verify", pipeline=kept.ORDERS)


def test_on_the_processing_clock_a_pipeline_continues(left: Left) -> None:
    """The archive may be older than the window: then its keys are forgotten, rightly."""
    newer = [{"id": f"new {number}", "value": 0.5} for number in range(10)]
    left.send("kept.readings", [*newer, *newer])
    totals = left.catch_up(kept.READINGS)
    assert (totals["written"], totals["duplicates"]) == (len(newer), len(newer))
    assert left.query(f"SELECT count() FROM {kept.DATABASE}.readings") == [(len(kept.READ) + len(newer),)]
    left.of_pipelines("verify", pipeline=kept.READINGS)
