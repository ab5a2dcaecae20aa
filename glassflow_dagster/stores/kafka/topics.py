"""Reads metadata, offsets and settings of topics from the brokers. Creates no topic, joins no consumer group."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource  # type: ignore[attr-defined]

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT, ask_metadata, convert_kafka_errors, open_consumer
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable, TopicForbidden, TopicMissing

T = TypeVar("T")

# Timeout of one request while waiting. It can be short: the connection is kept, so a slow one is still established.
WAITING_ANSWER_TIMEOUT = 3.0  # seconds

WAIT_INTERVAL = 1.0  # seconds between two requests for something that does not exist yet


# The part of an error text that differs between attempts: how long it took, and how often it occurred.
_VARYING_PART = re.compile(r"\(after [^)]*\)")

_NOT_VISIBLE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Offsets(NamedTuple):
    """A partition's first available offset (`low`) and the offset of the next record to be written (`high`)."""

    low: int
    high: int


def wait_for_brokers(connection: KafkaConnection, timeout_seconds: float, report: Callable[[str], None]) -> None:
    """Wait until a broker answers; raises `KafkaUnreachable` when none does within the timeout.

    Raises `KafkaRefused` at once for a wrong password or certificate, as do the other functions of this module.
    """
    with open_consumer(connection) as (consumer, errors):
        wait_for(
            lambda: ask_metadata(connection, consumer, errors, topic=None, timeout=WAITING_ANSWER_TIMEOUT),
            timeout_seconds,
            report,
        )


def wait_for_topic(
    connection: KafkaConnection, topic: str, timeout_seconds: float | None, report: Callable[[str], None]
) -> int:
    """Wait until a topic exists and return its number of partitions; a timeout of None waits forever.

    Reports each new reason for waiting once. Raises the last `TopicMissing` or `KafkaUnreachable` after the timeout,
    and `TopicForbidden` at once. Never creates the topic.
    """
    with open_consumer(connection) as (consumer, errors):
        return wait_for(
            lambda: len(_partitions(connection, consumer, errors, topic, WAITING_ANSWER_TIMEOUT)),
            timeout_seconds,
            report,
        )


def wait_for(ask: Callable[[], T], timeout_seconds: float | None, report: Callable[[str], None]) -> T:
    """Call a function until it raises neither `KafkaUnreachable` nor `TopicMissing`, and return its result.

    A timeout of None waits forever. Reports each new reason for waiting once; raises the last one after the timeout.
    """
    wait = _Wait(timeout_seconds, report)
    while True:
        try:
            return ask()
        except (KafkaUnreachable, TopicMissing) as problem:
            wait.pause_after(problem)


def require_readable(connection: KafkaConnection, topics: Iterable[str]) -> None:
    """Raise `TopicForbidden` for a topic that this user may describe but not read.

    Brokers before Kafka 2.3 do not report the rights; then nothing is raised.
    """
    names = list(topics)
    # Kept in a variable until all results are read: they are lost when the client is garbage-collected.
    admin = AdminClient(client_settings(connection))
    requests = admin.describe_topics(
        TopicCollection(names), request_timeout=ANSWER_TIMEOUT, include_authorized_operations=True
    )
    for name in names:
        try:
            granted = requests[name].result(ANSWER_TIMEOUT).authorized_operations
        except KafkaException as error:
            raise _topic_error(connection, name, error.args[0]) from error
        if granted and AclOperation.READ not in granted:
            raise _forbidden(connection, name, "read it", "READ")


def offsets(connection: KafkaConnection, topic: str) -> dict[int, Offsets]:
    """Return the offsets of each partition; raises `TopicMissing`, `TopicForbidden` or `KafkaUnreachable`."""
    with open_consumer(connection) as (consumer, errors):
        partitions = _partitions(connection, consumer, errors, topic, ANSWER_TIMEOUT)
        with convert_kafka_errors(connection, consumer, errors):
            return {
                partition: Offsets(
                    *consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT)
                )
                for partition in partitions
            }


def offsets_if_there(connection: KafkaConnection, topic: str) -> dict[int, Offsets]:
    """Return the offsets of each partition; empty for a topic that does not exist."""
    try:
        return offsets(connection, topic)
    except TopicMissing:
        return {}


def topic_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, str]:
    """Return the topic ids that the brokers assign: name -> id. A topic that is deleted and created again has a new id.

    Topics without an id are left out: those that do not exist or that this user may not describe, and all topics of
    brokers before Kafka 2.8. Raises `KafkaUnreachable`.
    """
    names = list(topics)
    # Kept in a variable until all results are read: they are lost when the client is garbage-collected.
    admin = AdminClient(client_settings(connection))
    requests = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_TIMEOUT)
    ids = {}
    for name in names:
        try:
            topic_id = requests[name].result(ANSWER_TIMEOUT).topic_id
        except KafkaException as error:
            if error.args[0].code() in _NOT_VISIBLE:
                continue
            brokers = ", ".join(connection.brokers)
            raise KafkaUnreachable(
                f"Kafka at {brokers} cannot describe topic {name!r}: {error.args[0].str()}; try again"
            ) from error
        halves = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
        if any(halves):  # the zero id stands for none
            ids[name] = ":".join(str(half) for half in halves)
    return ids


class Cleanup(NamedTuple):
    """Which topics are compacted.

    compacted: the compacted topics.
    unknown: topics whose settings this user may not read.
    """

    compacted: frozenset[str]
    unknown: frozenset[str]


def cleanup_of(connection: KafkaConnection, topics: Iterable[str]) -> Cleanup:
    """Read from each topic's cleanup.policy whether it is compacted; a missing topic counts as not compacted.

    A topic whose settings this user may not read is unknown. Raises `KafkaUnreachable` for any other error.
    """
    compacted, unknown = set(), set()
    # Kept in a variable until all results are read: they are lost when the client is garbage-collected.
    admin = AdminClient(client_settings(connection))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    for resource, request in admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT).items():
        try:
            policy = request.result(ANSWER_TIMEOUT)["cleanup.policy"].value
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                unknown.add(resource.name)
                continue
            brokers = ", ".join(connection.brokers)
            raise KafkaUnreachable(
                f"Kafka at {brokers} cannot describe topic {resource.name!r}: {error.args[0].str()}; try again"
            ) from error
        if "compact" in policy:
            compacted.add(resource.name)
    return Cleanup(frozenset(compacted), frozenset(unknown))


def commit_offsets(connection: KafkaConnection, group: str, committed: Mapping[str, Mapping[int, int]]) -> None:
    """Commit offsets for a consumer group, so that lag monitoring tools can show them.

    committed: topic -> partition -> the next offset to read. The pipeline itself never reads these offsets. Raises
    `KafkaUnreachable`.
    """
    positions = [
        TopicPartition(topic, partition, offset)
        for topic, partitions in committed.items()
        for partition, offset in partitions.items()
    ]
    settings = {"group.id": group}
    with open_consumer(connection, settings) as (consumer, errors), convert_kafka_errors(connection, consumer, errors):
        consumer.commit(offsets=positions, asynchronous=False)


def _partitions(
    connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError], topic: str, timeout: float
) -> list[int]:
    """Return the topic's partition numbers; raises an error of `_topic_error` when the brokers report one."""
    metadata = ask_metadata(connection, consumer, errors, topic, timeout).topics[topic]
    if metadata.error is None:
        return sorted(metadata.partitions)
    raise _topic_error(connection, topic, metadata.error)


def _topic_error(
    connection: KafkaConnection, topic: str, error: KafkaError
) -> TopicMissing | TopicForbidden | KafkaUnreachable:
    """Convert the error that the brokers report for a topic: it is missing, a right is missing, or anything else."""
    brokers = ", ".join(connection.brokers)
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return TopicMissing(
            f"topic {topic!r} does not exist on {brokers}; create it, or correct its name in the definition"
        )
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return _forbidden(connection, topic, "see it", "DESCRIBE and READ")
    return KafkaUnreachable(f"Kafka at {brokers} cannot describe topic {topic!r}: {error.str()}; try again")


def _forbidden(connection: KafkaConnection, topic: str, verb: str, rights: str) -> TopicForbidden:
    """Build the error for a missing right; it names the Kafka user and the ACL operations to grant.

    verb: what the user may not do, such as `read it`.
    rights: the ACL operations.
    """
    authenticates = connection.mechanism != "NO_AUTH" and not connection.skip_auth
    if authenticates and connection.username:
        principal = f"user {connection.username!r}"
    elif connection.client_cert:
        principal = "the user of the client's certificate"
    else:
        principal = "the user of this connection"
    return TopicForbidden(
        f"topic {topic!r} on {', '.join(connection.brokers)}: {principal} may not {verb}; grant {rights} on the "
        "topic, or connect as a user that has the right (connection_params), then start the pipeline again, which "
        "continues where it stopped"
    )


class _Wait:
    """Pauses between attempts until a timeout (None: never); reports each new reason for waiting once."""

    def __init__(self, timeout_seconds: float | None, report: Callable[[str], None]) -> None:
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._report = report
        self._reported: set[str] = set()

    def pause_after(self, problem: KafkaUnreachable | TopicMissing) -> None:
        """Report `problem` unless its reason was reported before, and pause; raise it after the timeout instead."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise problem
        reason = _VARYING_PART.sub("", str(problem))
        if reason not in self._reported:
            self._reported.add(reason)
            self._report(f"waiting: {problem}")
        time.sleep(WAIT_INTERVAL)
