"""Shared parts of the end-to-end tests: pipelines with their own topic and table, events, and the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import clickhouse_connect
import pytest
import yaml
from click.testing import CliRunner
from clickhouse_connect.driver.client import Client
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.cli import main
from glassflow_dagster.control.heartbeat import pipeline_folder, read_heartbeat
from glassflow_dagster.control.lock import Holder
from glassflow_dagster.control.pipeline_metrics import read_pipeline
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver import jvm
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.support import definition as v3
from tests.support.partitions import grow_topic
from tests.support.sending import Sender
from tests.support.waiting import DEADLINE, wait_until

# Rows of a block: a batch of hundreds of blocks takes long enough to be interrupted.
SMALL_BLOCK, TINY_BLOCK = 50, 5
LARGEST_MESSAGE = 12 * 1024 * 1024  # bytes


@dataclass
class Pipeline:
    """A test's pipeline with a topic, a database and a state folder of its own."""

    folder: Path
    brokers: str
    clickhouse_port: int
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")
    window: str = "1h"
    fields: list[dict[str, Any]] = field(
        default_factory=lambda: [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]
    )
    columns: dict[str, str] = field(default_factory=lambda: {"id": "String", "n": "Int32"})
    keys: list[str] = field(default_factory=lambda: ["id"])
    clock: dict[str, str] = field(default_factory=dict)
    transforms: list[dict[str, Any]] = field(default_factory=list)
    sink: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    dead_letters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _client(self) -> Client:
        # Kept, because it asks the server for all its settings when it connects. Without a session, in which ClickHouse
        # allows one query at a time: tests use it from threads, too.
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse_port, autogenerate_session_id=False)

    @property
    def file(self) -> Path:
        return self.folder / "pipelines" / f"{self.name}.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def write(self, *, dedup: bool = True) -> "Pipeline":
        config = {"keys": self.keys, "time_window": self.window, **self.clock}
        own = [{"type": "dedup", "source_id": "events", "config": config}] if dedup else []
        settings = {"max_batch_size": 1000, "max_delay_time": "200ms", "create_table": {"order_by": "tuple()"}}
        clickhouse = v3.clickhouse(self.clickhouse_port, self.name)
        definition = v3.definition(
            self.name,
            v3.source("events", self.fields, self.brokers, **{"topic": self.name, **self.source}),
            v3.sink(self.columns, clickhouse, **{"table": "events", **settings, **self.sink}),
            *({**transform, "source_id": "events"} for transform in self.transforms),
            *own,
            dead_letters=self.dead_letters,
            metrics=self.metrics,
            **self.more,
        )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump(definition))
        return self

    def create_topic(self, partitions: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        topic = NewTopic(self.name, partitions, 1, config={"max.message.bytes": str(LARGEST_MESSAGE)})
        admin.create_topics([topic])[self.name].result(30)

    def add_partition(self, partitions: int) -> None:
        """Increase the topic's partitions to this number; return when producers can see them."""
        grow_topic(AdminClient({"bootstrap.servers": self.brokers}), self.name, partitions)

    def send(
        self,
        events: Iterable[Any],
        partition: Callable[[int], int] = lambda index: index % 2,
        compression: str = "none",
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> int:
        """Send events (objects as JSON, bytes unchanged), by default to the partitions in turn.

        headers: of each record, beside one of its own.
        """
        sender = Sender(self.brokers, {
            "message.max.bytes": LARGEST_MESSAGE, "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000, "linger.ms": 20, "enable.idempotence": True,
        })  # fmt: skip
        count = 0
        for index, event in enumerate(events):
            value = event if isinstance(event, bytes | None) else json.dumps(event).encode()
            sender.send(self.name, value, b"k", partition(index), headers=[("h", b"1"), *headers])
            count += 1
        sender.flush()
        return count

    def run(self, *options: str, **environment: str) -> "Finished":
        return cli("run", str(self.file), "--state", str(self.state), *options, environment=environment)

    def run_without_spark(self, *options: str, **environment: str) -> "Finished":
        """Run in this process, without a JVM; for runs that fail before a session is opened."""
        arguments = ("run", str(self.file), "--state", str(self.state), *options)
        with patch.object(jvm, "prepare_jvm"):
            return invoke(*arguments, environment=environment)

    def catch_up(self, **how: Any) -> dict[str, int]:
        """Run in this process until all is read, since a driver of its own would take ten seconds to start.

        how: further fields of `RunOptions`.
        """
        options = RunOptions(self.state, until_caught_up=True, timeout_seconds=DEADLINE, **how)
        config = load_pipeline(self.file)
        totals: dict[str, int] = run_pipeline(config, options, print).model_dump()
        # Whatever a test does to a pipeline, each of its records has an outcome.
        (metrics,) = read_pipeline(self.state, config.pipeline_id)
        assert metrics.residual == 0
        return totals

    def die_at(self, method: str, **how: Any) -> None:
        """Run in this process up to a method of the batch writer, in place of which the driver dies.

        method: `write_blocks` or `write_ledger_row`. how: as in `catch_up`.
        """
        death = GlassflowError(f"the driver died at {method}")
        with (
            patch.object(BatchWriter, method, side_effect=death),
            pytest.raises(GlassflowError, match="driver died at"),
        ):
            self.catch_up(**how)

    def client(self) -> Client:
        return self._client

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Query ClickHouse; `{db}` in the SQL stands for the pipeline's database."""
        return [tuple(row) for row in self.client().query(sql.format(db=self.name)).result_rows]

    def ledger(self) -> dict[str, int]:
        names = ("read", "written", "duplicates", "dead_letters", "filtered", "late", "unmatched")
        sums = ", ".join(f"sum({name})" for name in names)
        row = self.query(f"SELECT {sums} FROM {{db}}.glassflow_ledger")[0]
        return dict(zip(names, row, strict=True))


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


def cli(*arguments: str, environment: dict[str, str] | None = None, timeout: float = DEADLINE) -> Finished:
    done = subprocess.run(
        [sys.executable, "-m", "glassflow_dagster", *arguments],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return Finished(done.returncode, done.stdout, done.stderr)


def invoke(*arguments: str, environment: dict[str, str] | None = None) -> Finished:
    """Run a command in this process: a new process spends most of its time on imports."""
    done = CliRunner(catch_exceptions=False).invoke(main, arguments, env=environment)
    return Finished(done.exit_code, done.stdout, done.stderr)


def tutorial(
    page: str, pipeline: Pipeline, replaced: Mapping[str, str], section: str = ""
) -> tuple[str, dict[str, str]]:
    """Return a tutorial's text for the pipeline's own servers, and its last block of each language.

    replaced: further parts of the text, each of which must be there, and what takes their place.
    section: the heading of the one section that is meant; without it, the whole page.
    """
    text = (Path(__file__).parents[2] / "docs" / "tutorials" / f"{page}.md").read_text()
    if section:
        [text] = re.findall(rf"^## {section}\n.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    servers = {
        "127.0.0.1:9092": pipeline.brokers,
        "port: 8123": f"port: {pipeline.clickhouse_port}",
        "database: default": f"database: {pipeline.name}",
    }
    for written, own in {**servers, **replaced}.items():
        assert written in text
        text = text.replace(written, own)
    return text, dict(re.findall(r"```(python|yaml|sql)\n(.*?)```", text, re.DOTALL))


def start(pipeline: Pipeline) -> None:
    done = invoke("start", str(pipeline.file), "--state", str(pipeline.state))
    assert done.code == 0, done.err


def rows(pipeline: Pipeline) -> int:
    return int(pipeline.query("SELECT count() FROM {db}.events")[0][0])


def wait_for_first_row(pipeline: Pipeline) -> None:
    wait_until(lambda: pipeline.query("EXISTS {db}.events") == [(1,)] and rows(pipeline) == 1, "the row has arrived")


def lock_holder(pipeline: Pipeline) -> Holder:
    """Return the entry of the process that has, or last had, the pipeline's lock."""
    return Holder.model_validate_json((pipeline_folder(pipeline.state, pipeline.name) / "lock").read_text())


def begin_large_batch(pipeline: Pipeline, events: int, *, as_job: bool = False) -> None:
    """Start a driver on a batch of many small blocks, keys `k0`, `k1`, ...; return when the first one is visible.

    The batch is the first one, so it is inline and not larger than `FIRST_RECORDS`; as_job: a job, and as large as it
    may be.
    """
    pipeline.sink = {"max_batch_size": SMALL_BLOCK if as_job else TINY_BLOCK}
    if as_job:
        pipeline.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    pipeline.write().create_topic()
    pipeline.send({"id": f"k{index}", "n": index} for index in range(events))
    start(pipeline)
    wait_until(lambda: rows(pipeline) > 0, "the first block is in the table")


def require_batch_under_way(pipeline: Pipeline) -> None:
    """Fail if the first batch was over before the driver was interrupted, because then the test proves nothing."""
    assert pipeline.ledger()["read"] == 0, "the batch was over before: make it larger"


def stop(pipeline: Pipeline) -> None:
    done = invoke("stop", pipeline.name, "--state", str(pipeline.state))
    assert done.code == 0, done.err


def status(pipeline: Pipeline) -> dict[str, Any]:
    done = invoke(
        "status", pipeline.name, "--json", "--state", str(pipeline.state), "--pipelines", str(pipeline.file.parent)
    )
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def state(pipeline: Pipeline) -> str:
    """Return the stream's state, without the servers that the command `status` asks as well."""
    return stream_status(pipeline.state, pipeline.name).state.value


def kill(pipeline: Pipeline) -> None:
    """Kill the driver, and wait until its lock is free."""
    beat = read_heartbeat(pipeline_folder(pipeline.state, pipeline.name))
    assert beat is not None
    os.kill(beat.pid, signal.SIGKILL)
    wait_until(lambda: state(pipeline) == "FAILED", "the kill is noticed")
