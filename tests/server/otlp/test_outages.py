"""What the receiver has acknowledged is in the topic, whatever dies; what it cannot write, clients may send again."""

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import grpc
import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from glassflow_dagster.local.broker import broker_answers, prepare_broker
from glassflow_dagster.local.ports import free_port
from tests.faults.servers import Server
from tests.server.otlp.conftest import Receiver, span_names, traces, values
from tests.servers.stack import Stack
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
Begin = Callable[..., Receiver]


class Broker:
    """A broker of this file's own, which can be paused and killed; `stack` is what the helpers of conftest take."""

    def __init__(self, folder: Path) -> None:
        self._folder, port = folder, free_port()
        prepared = prepare_broker(folder, port, print)
        self.server = Server("Kafka", list(prepared.command), port, folder / "log", prepared.variables)
        self.stack = Stack(port, 0, ())

    def start(self) -> None:
        self.server.start()
        wait_until(lambda: broker_answers(self.server.port, self._folder), "the broker answers")

    def new_topic(self) -> str:
        name = f"otlp-{uuid4().hex}"
        self.admin().create_topics([NewTopic(name, 2, 1)])[name].result(60)
        return name

    def admin(self) -> AdminClient:
        self._admin = AdminClient({"bootstrap.servers": self.stack.kafka})
        return self._admin

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.server.end()


class Load:
    """Clients of both transports that send until they are stopped; `acknowledged` are the spans answered with success.

    A client sends a span again until it is acknowledged, with pauses as short as the answer of the receiver.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.acknowledged: list[str] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(4)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self, client: int) -> None:
        with httpx.Client(timeout=60) as http, grpc.insecure_channel(self.receiver.grpc) as channel:
            export = TraceServiceStub(channel).Export
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                names = [f"{client}-{number}-{each}" for each in range(5)]
                with suppress(httpx.HTTPError, grpc.RpcError):
                    request = traces(names)
                    if client % 2:
                        export(request, timeout=60)
                    else:
                        headers = {"Content-Type": "application/x-protobuf"}
                        url = f"{self.receiver.url}/v1/traces"
                        http.post(url, content=request.SerializeToString(), headers=headers).raise_for_status()
                    self.acknowledged += names

    def wait_for_more(self) -> None:
        """Wait until a hundred more spans are acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= before + 100, "spans are acknowledged")


def begin_receiver(broker: Broker, processes: Begin, topic: str, *options: str) -> Receiver:
    return processes("--brokers", broker.stack.kafka, "--traces-topic", topic, *options).wait_until_it_listens()


def test_what_is_acknowledged_outlives_the_receiver(broker: Broker, processes: Begin) -> None:
    topic = broker.new_topic()
    with Load(begin_receiver(broker, processes, topic)) as load:
        load.wait_for_more()
        load.receiver.process.kill()
        load.receiver.process.wait()
    found = span_names(values(broker.stack, topic))
    assert len(load.acknowledged) >= 100
    assert set(load.acknowledged) <= set(found)
    # Besides the spans that were on their way: at most one request of each client.
    assert len(set(found) - set(load.acknowledged)) <= 4 * 5
    assert len(found) == len(set(found))


def test_what_is_acknowledged_outlives_the_broker_and_writing_goes_on(broker: Broker, processes: Begin) -> None:
    topic = broker.new_topic()
    with Load(begin_receiver(broker, processes, topic)) as load:
        load.wait_for_more()
        broker.server.kill()
        broker.start()
        load.wait_for_more()
        # The idempotent producer goes on after its messages have failed, too.
        with broker.paused():
            wait_until(lambda: 'code="503"' in load.receiver.metrics(), "requests fail")
        load.wait_for_more()
        assert load.receiver.end() == 0
    assert set(load.acknowledged) <= set(span_names(values(broker.stack, topic)))
    assert "Traceback" not in load.receiver.said


def test_the_end_answers_what_was_accepted(broker: Broker, processes: Begin) -> None:
    topic = broker.new_topic()
    receiver = begin_receiver(broker, processes, topic, "--ack-timeout", "60")
    with ThreadPoolExecutor() as clients:
        with broker.paused():
            waiting = clients.submit(receiver.post, traces(["by HTTP"]).SerializeToString())
            channel = grpc.insecure_channel(receiver.grpc)
            call = TraceServiceStub(channel).Export.future(traces(["by gRPC"]), timeout=60)
            wait_until(lambda: in_queue(receiver) == 2, "both wait for Kafka")
            receiver.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "otlp: ends when" in receiver.said, "the receiver ends")
            assert receiver.process.poll() is None
        assert waiting.result(60).status_code == 200
        assert call.result(60) is not None
    channel.close()
    assert receiver.process.wait(60) == 0
    assert receiver.said.endswith("otlp: ended\n")
    assert span_names(values(broker.stack, topic)) == ["by HTTP", "by gRPC"]


def in_queue(receiver: Receiver) -> int:
    """Return the number of small messages that wait for Kafka."""
    [line] = [each for each in receiver.metrics().splitlines() if each.startswith("glassflow_otlp_queued_bytes ")]
    return int(float(line.split()[1]) // 1024)


def test_the_end_tells_clients_to_try_again_if_kafka_is_down(broker: Broker, processes: Begin) -> None:
    receiver = begin_receiver(broker, processes, broker.new_topic(), "--ack-timeout", "2")
    with ThreadPoolExecutor() as clients, broker.paused():
        waiting = clients.submit(receiver.post, traces(["lost to none"]).SerializeToString())
        wait_until(lambda: in_queue(receiver) == 1, "it waits for Kafka")
        assert receiver.end(signal.SIGINT) == 0
        assert waiting.result(60).status_code == 503


def retry_delay(status: Any) -> int:
    """Return the seconds of the RetryInfo of a google.rpc.Status."""
    info = RetryInfo()
    [detail] = status.details
    assert detail.Unpack(info)
    return int(info.retry_delay.seconds)


def failure(receiver: Receiver, request: Any) -> tuple[str, Any]:
    """Send by gRPC, and return the code and the details of the error."""
    with grpc.insecure_channel(receiver.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        TraceServiceStub(channel).Export(request, timeout=60)
    error: Any = raised.value
    return error.code().name, Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])


@pytest.mark.long
def test_while_kafka_does_not_answer_clients_are_told_to_try_again(broker: Broker, processes: Begin) -> None:
    topic = broker.new_topic()
    limits = ("--max-request-bytes", "50000", "--max-in-flight-bytes", "50000", "--ack-timeout", "10")
    receiver = begin_receiver(broker, processes, topic, *limits)
    request = traces(["waits"], "x" * 30_000)
    with ThreadPoolExecutor() as clients, broker.paused():
        waiting = clients.submit(receiver.post, request.SerializeToString())
        wait_until(lambda: in_queue(receiver), "it waits for Kafka")
        refused = receiver.post(traces(["refused"], "x" * 20_000).SerializeToString())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        status = Status.FromString(refused.content)
        assert (status.code, retry_delay(status)) == (8, 1)
        assert "requests in progress have reached 50,000 bytes; send it again later" in status.message
        code, status = failure(receiver, traces(["refused"], "x" * 20_000))
        assert (code, retry_delay(status)) == ("RESOURCE_EXHAUSTED", 1)
        late = waiting.result(60)
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        status = Status.FromString(late.content)
        assert (status.code, retry_delay(status)) == (14, 5)
        assert "has not acknowledged within 10 s; send it again" in status.message
        code, status = failure(receiver, request)
        assert (code, retry_delay(status)) == ("UNAVAILABLE", 5)
        wait_until(lambda: httpx.get(f"{receiver.url}/healthz").status_code == 503, "it is not healthy")
        assert "otlp: Kafka does not answer" in receiver.said
    wait_until(lambda: httpx.get(f"{receiver.url}/healthz").status_code == 200, "it is healthy again")
    assert "otlp: Kafka answers again" in receiver.said
    assert receiver.post(traces(["accepted"]).SerializeToString()).status_code == 200
    found = span_names(values(broker.stack, topic))
    assert "accepted" in found
    assert "refused" not in found


def test_a_topic_that_is_deleted_does_not_come_back(broker: Broker, processes: Begin) -> None:
    topic = broker.new_topic()
    receiver = begin_receiver(broker, processes, topic, "--ack-timeout", "3")
    assert receiver.post(traces(["before"]).SerializeToString()).status_code == 200
    broker.admin().delete_topics([topic])[topic].result(60)
    answer = receiver.post(traces(["after"]).SerializeToString())
    assert answer.status_code == 503
    assert topic not in broker.admin().list_topics(timeout=60).topics
