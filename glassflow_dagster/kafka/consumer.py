"""A consumer that only reads: it joins no group, creates no topic, and its failures are said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException

from glassflow_dagster.config.model import KafkaConnection
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.errors import KafkaUnreachable

ANSWER_TIMEOUT = 10.0  # seconds for one question; a TLS and SASL handshake with a far broker takes two or three

# Librdkafka wants one for assigned partitions too; it is never joined and nothing is committed to it.
_NO_GROUP = "glassflow-dagster-reader"


@contextmanager
def open_consumer(
    connection: KafkaConnection, settings: dict[str, Any] | None = None
) -> Iterator[tuple[Consumer, list[str]]]:
    """Open a consumer that joins no group and creates no topic, with the list of what goes wrong underneath."""
    errors: list[str] = []
    consumer = Consumer({
        **client_settings(connection),
        "group.id": _NO_GROUP,
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "error_cb": lambda error: errors.append(error.str()),
        **(settings or {}),
    })  # fmt: skip
    try:
        yield consumer, errors
    finally:
        consumer.close()


@contextmanager
def answering(connection: KafkaConnection, consumer: Consumer, errors: list[str]) -> Iterator[None]:
    """Turn librdkafka's failures into `KafkaUnreachable`."""
    try:
        yield
    except KafkaException as error:
        consumer.poll(0)  # hands over what went wrong underneath
        raise unreachable(connection, errors, "do not answer", error.args[0].str()) from error


def unreachable(
    connection: KafkaConnection, errors: list[str], what: str, otherwise: str = "no reason given"
) -> KafkaUnreachable:
    """Say that the brokers do not do their part, with the reason that lies underneath, or else `otherwise`."""
    # The last error of all is "all brokers are down"; the one before it says why.
    reasons = [otherwise, *(error for error in errors if "brokers are down" not in error)]
    return KafkaUnreachable(
        f"Kafka's brokers at {', '.join(connection.brokers)} {what} ({reasons[-1]}); start them (glassflow-dagster "
        "stack up starts an embedded one) or correct connection_params (brokers, protocol, credentials)"
    )
