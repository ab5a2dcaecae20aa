"""One pipeline with its topics, its table and its driver, as the faults act on it."""

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import yaml
from click.testing import CliRunner
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from glassflow_dagster.cli import main
from glassflow_dagster.control.pool_endpoint import pool_folder
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.faults.driver import Driver
from tests.faults.http_proxy import Exchange, HttpProxy, Rule
from tests.faults.judge import differences, differences_where_it_ended
from tests.faults.records import PARTITIONS, Event, Topics, Workload
from tests.faults.servers import Servers
from tests.support.sending import Sender
from tests.support.waiting import wait_until

# Catching up after two deaths of the driver takes more than three minutes on a busy machine.
COMPLETE_SECONDS = 300.0
# The least number of events that a repetition sends, and their rate.
_LEAST_EVENTS = 1200
_RATE = 1500  # events a second
# A fault that outlasts so many events, as by a driver's start, goes on with fewer: else a slow machine takes longer for
# the events than for the fault.
_MANY_EVENTS, _LOW_RATE = 4_000, 200
_CHUNK_SECONDS = 0.04
# Asking more often takes ClickHouse and this process a noticeable part of a machine with two cores.
_POLL_SECONDS = 0.4
FAULT_SECONDS = 90.0
# A driver and its executors start in a minute on a busy machine.
START_SECONDS = 180.0

# A driver lives for a minute here, too short to benefit from thorough compilation.
QUICK_COMPILATION: Mapping[str, str] = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}

# The most records of an inline batch, for one driver after the other: with the first, batches of some drivers' rate are
# inline and others are jobs, then nearly all are inline, then none.
_INLINE_RECORDS = (400, 10_000, 0)

# A common limit of brokers elsewhere, for the fault that sends large records.
_LARGEST_MESSAGE = 12 * 1024 * 1024  # bytes
_TOPIC = {"max.message.bytes": str(_LARGEST_MESSAGE)}
# Of producers: brokers die here on purpose, which librdkafka would report again and again.
_QUIET = {"log_level": 0}


class NotHit(Exception):
    """The fault found nothing to act on, so the repetition proves nothing."""


def _send(sender: Sender, event: Event) -> None:
    sender.send(event.topic, event.value, event.key, event.partition)


class Feed:
    """Sends a seed's events in the background until `end`; `sent` counts the events.

    rate, low_rate: events a second, the second one after `_MANY_EVENTS`.
    """

    def __init__(self, brokers: str, workload: Workload, seed: str, number: int, rate: int, low_rate: int) -> None:
        self._workload, self._seed, self._number = workload, seed, number
        self._rate, self._low_rate = rate, low_rate
        self._sender = Sender(brokers, {
            **_QUIET, "linger.ms": 5, "enable.idempotence": True, "message.timeout.ms": 120_000,
            "queue.buffering.max.messages": 1_000_000, "message.max.bytes": _LARGEST_MESSAGE,
        })  # fmt: skip
        self._ended = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, event: Event) -> None:
        """Send one more event."""
        _send(self._sender, event)
        self.sent += 1

    def end(self) -> int:
        """Send the events that complete the seed; return the number of events sent in all."""
        self._ended.set()
        self._thread.join()
        self._sender.flush(120)
        for event in self._workload.last_events(self._number):
            self.add(event)
        self._sender.flush(120)
        return self.sent

    def _run(self) -> None:
        events = self._workload.events(self._seed, self._number)
        due = time.monotonic()
        while self.sent < _LEAST_EVENTS or not self._ended.is_set():
            rate = self._rate if self.sent < _MANY_EVENTS else self._low_rate
            for _ in range(int(rate * _CHUNK_SECONDS)):
                self.add(next(events))
            due += _CHUNK_SECONDS
            time.sleep(max(0, due - time.monotonic()))


class World:
    """A pipeline on the servers behind their proxies."""

    def __init__(
        self, servers: Servers, folder: Path, make: Callable[[str], Workload], state: Path | None = None,
        variables: Mapping[str, str] = QUICK_COMPILATION,
    ) -> None:  # fmt: skip
        self.servers, self._variables = servers, variables
        self.name = f"f{uuid.uuid4().hex[:10]}"
        self.workload = make(self.name)
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self.state = state or self.folder / "state"
        self.definition = self.folder / f"{self.name}.yaml"
        ports = servers.kafka_proxy.port, servers.clickhouse_proxy.port
        definition = self.workload.definition(f"127.0.0.1:{ports[0]}", ports[1])
        self.definition.write_text(yaml.safe_dump(definition))
        self._pool = pool_folder(self.state, definition["pool"]) if "pool" in definition else None
        self.client = servers.client()
        for statement in self.workload.tables():
            self.client.command(statement)
        self.admin = AdminClient({"bootstrap.servers": servers.kafka})
        topics = [NewTopic(topic, PARTITIONS, 1, config=_TOPIC) for topic in self.workload.topics()]
        for made in self.admin.create_topics(topics).values():
            made.result(30)
        self._topics = Topics(servers.kafka, self.workload.topics())
        self.sent = 0
        self.repetitions = 0
        self._final_checks: list[Callable[[], list[str]]] = []
        self.log = self.folder / "driver.log"
        self._inline_records = cycle(_INLINE_RECORDS)
        self.driver = self.new_driver()
        self.feed: Feed | None = None

    def new_driver(self, *options: str) -> Driver:
        """Start a driver; the previous one must have ended. Each next one runs other batches inline than the last."""
        inline = f"{INLINE_RECORDS_SETTING}={next(self._inline_records)}"
        settings = ("--conf", inline, *options)
        return Driver(self.definition, self.state, self.log, self._variables, settings, self._pool)

    def replace_driver(self, *options: str) -> None:
        """Wait until a dying driver has ended, and start the next one."""
        self.driver.wait()
        self.driver = self.new_driver(*options)

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json` for the pipeline."""
        options = ["--pipelines", str(self.folder), "--state", str(self.state), "--json"]
        output = CliRunner(catch_exceptions=False).invoke(main, ["status", self.name, *options]).stdout
        return cast("dict[str, Any]", json.loads(output))

    def lose_state(self) -> None:
        """Wait until a dying driver has ended, and remove its state."""
        self.driver.wait()
        shutil.rmtree(self.state / self.name)

    def warm_up(self) -> None:
        """Wait until the driver has read its first events."""
        self.send(self.workload.last_events(-1))
        self.until(lambda: self.read == self.sent, "the driver begins", START_SECONDS)

    def send(self, events: Sequence[Event]) -> None:
        """Send events in addition to those of the seed."""
        sender = Sender(self.servers.kafka, _QUIET)
        for event in events:
            _send(sender, event)
            self.sent += 1
        sender.flush(30)

    def keep_records(self) -> int:
        """Read the topics before they lose records; return the number of records so far."""
        return len(self._topics.read())

    def begin(self, seed: str, rate: int = _RATE, low_rate: int = _LOW_RATE) -> None:
        """Start sending the events of a seed, and the other writers."""
        self.feed = Feed(self.servers.kafka, self.workload, seed, self.repetitions, rate, low_rate)
        self.workload.write_concurrently(self.client, self.repetitions)
        self.repetitions += 1

    def end_feed(self) -> None:
        """Stop sending, and wait until all events have arrived; raises AssertionError if one does not."""
        feed, self.feed = self.feed, None
        if feed:
            self.sent += feed.end()

    def change_topic(self, settings: Mapping[str, str]) -> None:
        """Change settings of the workload's topics."""
        entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in settings.items()]
        topics = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries) for topic in self.workload.topics()
        ]
        for changed in self.admin.incremental_alter_configs(topics).values():
            changed.result(30)

    def records_left(self) -> int:
        """Return the number of records that the topics still have."""
        topics = Topics(self.servers.kafka, self.workload.topics())
        try:
            return len(topics.read())
        finally:
            topics.close()

    @property
    def read(self) -> int:
        """Return the number of Kafka's records that the ledger has counted."""
        return self._progress()[0]

    def _progress(self) -> tuple[int, int]:
        """Return the number of records that the ledger has counted, and of the undecided left events of a join."""
        query = f"SELECT sum(records), argMax(waiting, batch_id) FROM {self.name}.glassflow_ledger"
        try:
            records, waiting = self.client.query(query).result_rows[0]
        except DatabaseError as error:
            if error.name != "UNKNOWN_TABLE":
                raise
            return 0, 0
        return int(records), int(waiting)

    def wait_and_compare(self, *, dies: bool, seconds: float = COMPLETE_SECONDS) -> list[str]:
        """Wait until all events are processed, and compare all results with the oracle; return what is wrong."""
        try:
            self.end_feed()
        except AssertionError as error:
            return [str(error)]
        undecided = self.workload.undecided(self._topics.read())
        deadline = time.monotonic() + seconds
        wrong = []
        while not self._is_complete(undecided):
            if self.driver.code is not None:
                if not dies:
                    wrong.append(f"the driver ended: {self.log_tail()}")
                self.driver = self.new_driver()
            if time.monotonic() > deadline:
                wrong.append(f"the ledger has {self.read} of {self.sent} records: {self.log_tail()}")
                break
            time.sleep(_POLL_SECONDS)
        return wrong + self.differences() + self.run_final_checks()

    def add_final_check(self, check: Callable[[], list[str]]) -> None:
        """Register a check to run after all events are processed; it may also clean up."""
        self._final_checks.append(check)

    def run_final_checks(self) -> list[str]:
        """Run the registered checks; return what is wrong."""
        wrong = [line for check in self._final_checks for line in check()]
        self._final_checks.clear()
        return wrong

    @property
    def batches(self) -> int:
        """Return the number of rows in the ledger."""
        return int(self.client.query(f"SELECT count() FROM {self.name}.glassflow_ledger").result_rows[0][0])

    def differences(self) -> list[str]:
        """Return the differences from the oracle."""
        return differences(self.client, self.workload, self.name, self._topics.read())

    def differences_where_it_ended(self) -> list[str]:
        """Return the differences from the oracle for a pipeline that has ended, without reading the topics again."""
        return differences_where_it_ended(self.client, self.workload, self.name, self._topics.kept)

    def _is_complete(self, undecided: int) -> bool:
        read, waiting = self._progress()
        return read >= self.sent and waiting == undecided

    def apply_rule(self, rule: Rule, proxy: HttpProxy | None = None, seconds: float = FAULT_SECONDS) -> int:
        """Put a rule in force until it is done, by default for ClickHouse; return how many requests it has acted on.

        seconds: the most to wait; at least START_SECONDS if the driver has only just been started.
        """
        proxy = proxy or self.servers.clickhouse_proxy
        proxy.fail(rule)
        rule.done.wait(seconds)
        proxy.behave()
        if not rule.hits:
            raise NotHit
        return rule.hits

    def killing(self, tables: frozenset[str], skip: int, *, applied: bool) -> Rule:
        """Return a rule that kills all processes of the driver during an insert, before or after its execution."""

        def act(exchange: Exchange) -> None:
            if applied:
                exchange.forward()
            self.driver.kill(self.driver.all)
            exchange.hang_up()

        return Rule(act, tables, skip)

    def until(self, condition: Callable[[], object], what: str, seconds: float = FAULT_SECONDS) -> None:
        """Wait for a condition; on failure, report the driver's last message."""
        wait_until(condition, what, seconds, self.log_tail)

    def log_tail(self) -> str:
        """Return the last line of the driver's log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> int:
        """Stop the driver as a user does; return its exit code."""
        code = self.driver.stop()
        self.end()
        return code

    def end(self) -> None:
        """Kill the driver's processes."""
        self.driver.end()
        self._topics.close()
