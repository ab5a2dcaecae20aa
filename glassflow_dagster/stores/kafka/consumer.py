"""Opens consumers that only read (no group, no new topics) and converts their errors to one-line messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.connection_errors import find_permanent_error, token_error
from glassflow_dagster.stores.kafka.errors import KafkaRefused, KafkaUnreachable

ANSWER_TIMEOUT = 10.0  # seconds per request; a TLS and SASL handshake with a distant broker takes two or three

# librdkafka retries the connection after every error while it waits for metadata. So the first request ends after this
# time to check for a permanent error; if there is none, a second request waits for the full timeout.
_FIRST_TIMEOUT = 1.0  # seconds

# librdkafka requires a group.id even for assigned partitions; the group is never joined, no offset is committed.
UNUSED_GROUP = "glassflow-dagster-reader"


@contextmanager
def open_consumer(
    connection: KafkaConnection, settings: dict[str, Any] | None = None
) -> Iterator[tuple[Consumer, list[KafkaError]]]:
    """Yield a consumer that joins no group and creates no topic, and the list that collects librdkafka's errors.

    settings: further settings of confluent-kafka, which take precedence. Raises `KafkaRefused` when librdkafka rejects
    the settings, such as an invalid private key.
    """
    errors: list[KafkaError] = []
    with usable_settings():
        consumer = Consumer({
            **client_settings(connection),
            "group.id": UNUSED_GROUP,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "error_cb": errors.append,
            **(settings or {}),
        })  # fmt: skip
    try:
        yield consumer, errors
    finally:
        consumer.close()


@contextmanager
def usable_settings() -> Iterator[None]:
    """Raise `KafkaRefused` where librdkafka rejects the settings of the client that the block creates."""
    try:
        yield
    except KafkaException as error:
        raise KafkaRefused(
            f"connection_params: Kafka's client cannot use them ({error.args[0].str()}); correct root_ca, client_cert, "
            "client_key, settings and oauth"
        ) from error


@contextmanager
def convert_kafka_errors(connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError]) -> Iterator[None]:
    """Convert the block's `KafkaException` to `KafkaRefused` for a permanent error, else to `KafkaUnreachable`.

    errors: the list to which the consumer's error callback adds librdkafka's errors.
    """
    try:
        yield
    except KafkaException as error:
        consumer.poll(0)  # calls the error callback, which adds to `errors`
        raise unreachable(connection, errors, "do not answer", error.args[0].str()) from error


def ask_metadata(
    connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError], topic: str | None, timeout: float
) -> Any:
    """Return the metadata of a topic, or of all topics for None.

    A first request of `_FIRST_TIMEOUT` seconds finds permanent errors early (`KafkaRefused`); a second one waits for
    the full timeout (in seconds) before it raises `KafkaUnreachable`.
    """
    arguments = {"topic": topic} if topic else {}
    try:
        return consumer.list_topics(**arguments, timeout=_FIRST_TIMEOUT)
    except KafkaException as error:
        consumer.poll(0)  # delivers librdkafka's errors to the error callback
        if permanent := find_permanent_error(connection, errors):
            raise permanent from error
    with convert_kafka_errors(connection, consumer, errors):
        return consumer.list_topics(**arguments, timeout=timeout)


def unreachable(
    connection: KafkaConnection, errors: list[KafkaError], failure: str, otherwise: str = "no reason given"
) -> KafkaUnreachable | KafkaRefused:
    """Build the error for brokers that do not answer; `failure` is the verb phrase of its message.

    The reason is a permanent error among librdkafka's errors (then `KafkaRefused`), else the newest one, else
    `otherwise`.
    """
    permanent = find_permanent_error(connection, errors)
    if permanent:
        return permanent
    # "All brokers are down" follows the errors of the single brokers, which have the reason.
    reasons = [otherwise, *(error.str() for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN)]
    return token_error(connection, reasons[-1]) or KafkaUnreachable(
        f"Kafka's brokers at {', '.join(connection.brokers)} {failure} ({reasons[-1]}); start them (glassflow-dagster "
        "stack up starts an embedded one) or correct connection_params (brokers, protocol, credentials)"
    )
