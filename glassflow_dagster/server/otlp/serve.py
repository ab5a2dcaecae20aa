"""Runs the receiver: checks the topics, listens, and ends on a signal when all that was accepted is acknowledged."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.http_serving import HttpServer, http_server, listen, on_signal
from glassflow_dagster.server.otlp.admission import Admission, Token
from glassflow_dagster.server.otlp.budget import Budget
from glassflow_dagster.server.otlp.encoding import Encoding
from glassflow_dagster.server.otlp.grpc_server import GrpcServices
from glassflow_dagster.server.otlp.health import BrokerProbe
from glassflow_dagster.server.otlp.http_server import HttpEndpoints
from glassflow_dagster.server.otlp.kafka_writer import KafkaWriter, Limits
from glassflow_dagster.server.otlp.receiver import Receiver
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.topics import message_limit, require_topics
from glassflow_dagster.stores.kafka.topics import wait_for_brokers

Report = Callable[[str], None]

_BACKLOG = 1024  # connections that wait to be accepted, as of a restart of many clients
# Seconds that a request has at the end beyond the time for Kafka's acknowledgement.
_GRACE_SECONDS = 2


@dataclass(frozen=True)
class Options:
    """What the receiver does.

    topics: by the signal's name.
    written: the encoding of the messages.
    tls: files of certificate chain and private key, in PEM format.
    ack_timeout: seconds.
    broker_timeout: seconds to wait for the brokers at the start.
    largest_request, in_flight: bytes.
    Ports may be 0 for free ones.
    """

    connection: KafkaConnection
    topics: Mapping[str, str]
    create_topics: bool
    written: Encoding
    host: str
    http_port: int
    grpc_port: int
    token: Token
    tls: tuple[Path, Path] | None
    largest_request: int
    in_flight: int
    ack_timeout: float
    broker_timeout: float


def serve(options: Options, report: Report) -> None:
    """Receive until SIGINT or SIGTERM, then answer the outstanding requests; raises `GlassflowError`.

    A second signal ends the process at once.
    """
    wait_for_brokers(options.connection, options.broker_timeout, report)
    require_topics(options.connection, options.topics.values(), create=options.create_topics)
    limit = message_limit(options.connection, options.topics.values(), report)
    asyncio.run(_Serving(options, limit, report).run())


class _Serving:
    """One run of the receiver, in an event loop."""

    def __init__(self, options: Options, topic_limit: int, report: Report) -> None:
        self._options = options
        self._report = report
        self._metrics = ReceiverMetrics()
        bodies = Budget(options.in_flight, "requests in progress")
        queue = Budget(options.in_flight, "messages that wait for Kafka's acknowledgement")
        self._admission = Admission(options.token, bodies, options.largest_request)
        self._limits = Limits(topic_limit, options.ack_timeout, queue)
        self._end = asyncio.Event()
        self._failure = ""

    async def run(self) -> None:
        """Listen, wait for the end, and shut down; raises `GlassflowError`."""
        options = self._options
        with _listen(options.host, options.http_port) as listener:
            writer = KafkaWriter(options.connection, self._limits, self._metrics, self._fail)
            try:
                await self._serve(writer, listener)
            finally:
                await asyncio.to_thread(writer.close)
        if self._failure:
            raise GlassflowError(self._failure)

    async def _serve(self, writer: KafkaWriter, listener: socket.socket) -> None:
        options = self._options
        receiver = Receiver(options.topics, options.written, writer, self._metrics)
        probe = BrokerProbe(writer, next(iter(options.topics.values())), self._report)
        self._show_gauges(probe)
        http = self._http_server(receiver, probe)
        rpc = GrpcServices(receiver, self._admission, self._metrics).server()
        grpc_port = self._listen(rpc)
        on_signal(self._end.set)
        await rpc.start()
        serving = asyncio.create_task(http.serve([listener]))
        probing = asyncio.create_task(probe.run())
        self._report_addresses(listener.getsockname()[1], grpc_port)
        await self._end.wait()
        self._report("otlp: ends when Kafka has acknowledged what was accepted")
        http.should_exit = True
        await asyncio.gather(serving, rpc.stop(options.ack_timeout + _GRACE_SECONDS))
        probing.cancel()
        self._report("otlp: ended")

    def _http_server(self, receiver: Receiver, probe: BrokerProbe) -> HttpServer:
        """Return the HTTP server, which does not serve yet; raises `GlassflowError` for an invalid certificate."""
        options = self._options
        endpoints = HttpEndpoints(receiver, self._admission, self._metrics, probe.problem)
        grace_seconds = round(options.ack_timeout) + _GRACE_SECONDS
        return http_server(endpoints.application(), options.tls, grace_seconds, _BACKLOG)

    def _listen(self, rpc: grpc.aio.Server) -> int:
        """Let the gRPC server listen, and return its port; raises `GlassflowError`."""
        options = self._options
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{host}:{options.grpc_port}"
        try:
            if options.tls is None:
                return int(rpc.add_insecure_port(address))
            certificate, key = (file.read_bytes() for file in options.tls)
            return int(rpc.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)])))
        except RuntimeError:
            raise GlassflowError(f"otlp: cannot listen on {address} (gRPC); choose another --grpc-port") from None

    def _show_gauges(self, probe: BrokerProbe) -> None:
        for name, budget in (("open_request", self._admission.bodies), ("queued", self._limits.queue)):
            self._metrics.show(
                f"glassflow_otlp_{name}_bytes",
                f"Bytes of {budget.what}; the limit is --max-in-flight-bytes",
                partial(getattr, budget, "used"),
            )
        self._metrics.show(
            "glassflow_otlp_kafka_answer_age_seconds", "Time since Kafka's last answer to a probe", probe.age
        )

    def _fail(self, text: str) -> None:
        """End because the producer cannot write any more."""
        self._failure = (
            f"otlp: Kafka's producer has failed ({text}); start the receiver again. What was acknowledged is in the "
            "topics, clients send the rest again"
        )
        self._end.set()

    def _report_addresses(self, http_port: int, grpc_port: int) -> None:
        options = self._options
        scheme = "https" if options.tls else "http"
        topics = ", ".join(f"{name} to {topic}" for name, topic in options.topics.items())
        self._report(f"otlp: {scheme}://{options.host}:{http_port} and gRPC on {options.host}:{grpc_port}: {topics}")


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens for HTTP; raises `GlassflowError`."""
    try:
        return listen(host, port, _BACKLOG)
    except OSError as error:
        raise GlassflowError(
            f"otlp: cannot listen on {host}:{port} (HTTP): {error.strerror}; choose another --http-port or --host"
        ) from None
