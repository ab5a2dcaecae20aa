"""A receiver as a process of its own, and what a client of it needs."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers.stack import Stack
from tests.support.waiting import DEADLINE, wait_until

PROTOBUF = "application/x-protobuf"


class Receiver:
    """A running receiver."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._log = folder / f"otlp-{uuid4().hex}.log"
        command = [sys.executable, "-m", "glassflow_dagster", "otlp", "--http-port", "0", "--grpc-port", "0", *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLOW_")}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def wait_until_it_listens(self) -> "Receiver":
        def addresses() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said
            return re.search(r"(https?)://\S+:(\d+) and gRPC on \S+:(\d+): ", self.said)

        found = wait_until(addresses, "the receiver listens", evidence=lambda: self.said)
        self.url, self.grpc = f"{found[1]}://127.0.0.1:{found[2]}", f"127.0.0.1:{found[3]}"
        return self

    @property
    def said(self) -> str:
        return self._log.read_text()

    def post(self, body: bytes, signal_name: str = "traces", **headers: str) -> httpx.Response:
        """Send a body to a signal's endpoint; `content_type="..."` is the header content-type."""
        given = {"content-type": PROTOBUF, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return httpx.post(f"{self.url}/v1/{signal_name}", content=body, headers=given, timeout=60)

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=60).text

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


Start = Callable[..., Receiver]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Return a function that starts a receiver with options, and does not wait for it."""
    started: list[Receiver] = []

    def begin(*options: str) -> Receiver:
        started.append(Receiver(tmp_path, *options))
        return started[-1]

    yield begin
    for receiver in started:
        with suppress(ProcessLookupError):
            receiver.process.kill()
        receiver.process.wait(DEADLINE)


@pytest.fixture
def start(stack: Stack, processes: Callable[..., Receiver]) -> Start:
    """Return a function that starts a receiver on the embedded Kafka, and waits until it listens."""
    return lambda *options: processes("--brokers", stack.kafka, *options).wait_until_it_listens()


@pytest.fixture
def new_topic(stack: Stack) -> Callable[..., str]:
    """Return a function that creates a topic of the test's own."""

    def create(partitions: int = 2, **config: str) -> str:
        name = f"otlp-{uuid4().hex}"
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        admin.create_topics([topic])[name].result(60)
        return name

    return create


def values(stack: Stack, topic: str) -> list[bytes]:
    """Return the values of all messages of a topic."""
    consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": "none", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=60)[1] for each in partitions}
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: list[bytes] = []
        deadline = time.monotonic() + DEADLINE
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value())
        return found
    finally:
        consumer.close()


def traces(names: list[str], attribute: str = "") -> ExportTraceServiceRequest:
    """Return a request with a span of each name; `attribute` is the value of an attribute of each span."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add(schema_url="https://opentelemetry.io/schemas/1.0.0")
    resource.resource.attributes.add(key="service.name").value.string_value = "tests"
    scope = resource.scope_spans.add()
    scope.scope.name = "scope"
    for name in names:
        span = scope.spans.add(name=name, trace_id=os.urandom(16), span_id=os.urandom(8), kind=2)
        span.start_time_unix_nano, span.end_time_unix_nano = 1_700_000_000_000_000_000, 1_700_000_000_000_000_001
        if attribute:
            span.attributes.add(key="payload").value.string_value = attribute
    return request


def span_names(messages: list[bytes]) -> list[str]:
    """Return the names of the spans in messages, sorted."""
    found: list[Any] = [ExportTraceServiceRequest.FromString(message) for message in messages]
    return sorted(
        span.name
        for request in found
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    )
