"""A consumer that only reads: it joins no group, creates no topic, and its failures are said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.connection_errors import find_refusal
from glassflow_dagster.kafka.errors import KafkaRefused, KafkaUnreachable

ANSWER_TIMEOUT = 10.0  # seconds for one question; a TLS and SASL handshake with a far broker takes two or three

# Librdkafka keeps trying to connect while it waits for metadata, whatever the reason is: after so long a final one is
# looked for. An answer that takes longer is waited for all the same.
_FIRST_LOOK = 1.0  # seconds

# Librdkafka wants one for assigned partitions too; it is never joined and nothing is committed to it.
_NO_GROUP = "glassflow-dagster-reader"


@contextmanager
def open_consumer(
    connection: KafkaConnection, settings: dict[str, Any] | None = None
) -> Iterator[tuple[Consumer, list[KafkaError]]]:
    """Open a consumer that joins no group and creates no topic, with the list of what goes wrong underneath.

    Raises `KafkaRefused` where librdkafka cannot use what the connection says, such as a key that is none.
    """
    errors: list[KafkaError] = []
    try:
        consumer = Consumer({
            **client_settings(connection),
            "group.id": _NO_GROUP,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "error_cb": errors.append,
            **(settings or {}),
        })  # fmt: skip
    except KafkaException as error:
        raise KafkaRefused(
            f"connection_params: Kafka's client cannot use them ({error.args[0].str()}); correct root_ca, client_cert "
            "and client_key"
        ) from error
    try:
        yield consumer, errors
    finally:
        consumer.close()


@contextmanager
def answering(connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError]) -> Iterator[None]:
    """Turn librdkafka's failures into `KafkaUnreachable` or `KafkaRefused`."""
    try:
        yield
    except KafkaException as error:
        consumer.poll(0)  # hands over what went wrong underneath
        raise unreachable(connection, errors, "do not answer", error.args[0].str()) from error


def ask_metadata(
    connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError], topic: str | None, timeout: float
) -> Any:
    """Ask for what the brokers say of a topic, or of all; raises `KafkaUnreachable`, or soon `KafkaRefused`."""
    named = {"topic": topic} if topic else {}
    try:
        return consumer.list_topics(**named, timeout=_FIRST_LOOK)
    except KafkaException as error:
        consumer.poll(0)  # hands over what went wrong underneath
        if refused := find_refusal(connection, errors):
            raise refused from error
    with answering(connection, consumer, errors):
        return consumer.list_topics(**named, timeout=timeout)


def unreachable(
    connection: KafkaConnection, errors: list[KafkaError], what: str, otherwise: str = "no reason given"
) -> KafkaUnreachable | KafkaRefused:
    """Say that the brokers do not do their part, with the reason that lies underneath, or else `otherwise`."""
    refused = find_refusal(connection, errors)
    if refused:
        return refused
    # The last error of all is "all brokers are down"; the one before it says why.
    reasons = [otherwise, *(error.str() for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN)]
    return KafkaUnreachable(
        f"Kafka's brokers at {', '.join(connection.brokers)} {what} ({reasons[-1]}); start them (glassflow-dagster "
        "stack up starts an embedded one) or correct connection_params (brokers, protocol, credentials)"
    )
