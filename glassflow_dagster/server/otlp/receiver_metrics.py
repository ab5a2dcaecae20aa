"""What the receiver measures, for Prometheus. The names are a contract; docs/tutorials/otlp.md lists them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

# Seconds. A broker on the same network takes milliseconds; exporters wait ten seconds.
_ACK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ReceiverMetrics:
    """The metrics of one receiver, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "glassflow_otlp_requests",
            "Export requests by answer: HTTP status or gRPC code",
            ("signal", "transport", "code"),
            registry=self._registry,
        )
        self._records = Counter(
            "glassflow_otlp_records",
            "Spans, log records and data points of answered requests: accepted, or rejected as larger than a message",
            ("signal", "outcome"),
            registry=self._registry,
        )
        self._messages = Counter(
            "glassflow_otlp_messages", "Messages that Kafka has acknowledged", ("topic",), registry=self._registry
        )
        self._bytes = Counter(
            "glassflow_otlp_message_bytes",
            "Bytes of the messages that Kafka has acknowledged, before compression",
            ("topic",),
            registry=self._registry,
        )
        self._acknowledgements = Histogram(
            "glassflow_otlp_acknowledgement_seconds",
            "Time from queueing a message to Kafka's acknowledgement",
            ("topic",),
            buckets=_ACK_BUCKETS,
            registry=self._registry,
        )

    def show(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read when metrics are asked for."""
        Gauge(name, meaning, registry=self._registry).set_function(value)

    def answered(self, signal: str, transport: str, code: str) -> None:
        """Count an answer."""
        self._requests.labels(signal, transport, code).inc()

    def received(self, signal: str, accepted: int, rejected: int) -> None:
        """Count the records of a request that is answered with success."""
        self._records.labels(signal, "accepted").inc(accepted)
        self._records.labels(signal, "rejected").inc(rejected)

    def acknowledged(self, topic: str, size: int, seconds: float) -> None:
        """Count a message that Kafka has acknowledged."""
        self._messages.labels(topic).inc()
        self._bytes.labels(topic).inc(size)
        self._acknowledgements.labels(topic).observe(seconds)

    def text(self) -> bytes:
        """Return the metrics in OpenMetrics' text format."""
        return bytes(generate_latest(self._registry))  # type: ignore[no-untyped-call]
