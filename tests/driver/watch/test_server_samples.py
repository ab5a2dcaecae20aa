"""The figures that only the servers know: one that does not answer delays nothing of the other one."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.watch import server_samples
from glassflow_dagster.driver.watch.server_samples import sampled_servers
from tests.support.waiting import wait_until


class Heartbeat:
    """Keeps the updates."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []

    def update(self, progress: dict[str, Any]) -> None:
        self.updates.append(progress)


def test_the_lag_is_sampled_while_clickhouse_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(server_samples, "LAG_INTERVAL", 0.01)
    monkeypatch.setattr(server_samples.ServerSamples, "lags", lambda _: {"partition_lags": {}})
    monkeypatch.setattr(
        server_samples.ServerSamples, "dead_letters", lambda _: {"dead_letters_waiting": 3 if answers.wait() else None}
    )
    heartbeat = Heartbeat()
    run = cast("RunContext", SimpleNamespace(config=None, heartbeat=heartbeat))
    with sampled_servers(run, dict):
        wait_until(lambda: len(heartbeat.updates) > 5, "the lag is sampled several times")
        assert {"dead_letters_waiting": 3} not in heartbeat.updates
        answers.set()
        wait_until(lambda: {"dead_letters_waiting": 3} in heartbeat.updates, "ClickHouse has answered")
