"""Questions about topics, asked of the brokers themselves. Nothing here creates a topic or joins a consumer group."""

import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource  # type: ignore[attr-defined]

from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.kafka.client import client_settings
from glassflow_dagster.kafka.consumer import ANSWER_TIMEOUT, answering, ask_metadata, open_consumer
from glassflow_dagster.kafka.errors import KafkaUnreachable, TopicForbidden, TopicMissing

# While waiting, each question ends soon; the connection is kept, so a slow one comes up all the same.
WAITING_ANSWER_TIMEOUT = 3.0  # seconds

WAIT_INTERVAL = 1.0  # seconds between two looks at something that is not there yet


# What differs in one reason from one attempt to the next: how long it took, how often it was the same.
_CIRCUMSTANCES = re.compile(r"\(after [^)]*\)")

_NOT_TO_BE_SEEN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Offsets(NamedTuple):
    """A partition's first offset that is still there, and the next one to be written."""

    low: int
    high: int


def wait_for_brokers(connection: KafkaConnection, timeout_seconds: float, report: Callable[[str], None]) -> None:
    """Return once a broker answers; raises `KafkaUnreachable` when none does within the timeout.

    A password or certificate that is not accepted is final: that raises `KafkaRefused` at once, here and below.
    """
    wait = _Wait(timeout_seconds, report)
    with open_consumer(connection) as (consumer, errors):
        while True:
            try:
                ask_metadata(connection, consumer, errors, None, WAITING_ANSWER_TIMEOUT)
            except KafkaUnreachable as problem:
                wait.go_on(problem)
            else:
                return


def wait_for_topic(
    connection: KafkaConnection, topic: str, timeout_seconds: float | None, report: Callable[[str], None]
) -> int:
    """Return a topic's number of partitions once it exists; None waits for ever.

    Reports what it waits for when that changes. Raises `TopicMissing` or `KafkaUnreachable`, whichever was the case
    when the time was over, and `TopicForbidden` at once. Never creates the topic.
    """
    wait = _Wait(timeout_seconds, report)
    with open_consumer(connection) as (consumer, errors):
        while True:
            try:
                return len(_partitions(connection, consumer, errors, topic, WAITING_ANSWER_TIMEOUT))
            except (KafkaUnreachable, TopicMissing) as problem:
                wait.go_on(problem)


def require_readable(connection: KafkaConnection, topics: Iterable[str]) -> None:
    """Raise `TopicForbidden` for a topic that this user may see and not read; brokers before Kafka 2.3 do not tell."""
    names = list(topics)
    # Kept in a variable until all answers are there: it takes them along when it goes.
    admin = AdminClient(client_settings(connection))
    asked = admin.describe_topics(
        TopicCollection(names), request_timeout=ANSWER_TIMEOUT, include_authorized_operations=True
    )
    for name in names:
        try:
            granted = asked[name].result(ANSWER_TIMEOUT).authorized_operations
        except KafkaException as error:
            raise _topic_error(connection, name, error.args[0]) from error
        if granted and AclOperation.READ not in granted:
            raise _forbidden(connection, name, "read it", "READ")


def offsets(connection: KafkaConnection, topic: str) -> dict[int, Offsets]:
    """Ask for each partition's low and high offset; raises `TopicMissing`, `TopicForbidden` or `KafkaUnreachable`."""
    with open_consumer(connection) as (consumer, errors):
        partitions = _partitions(connection, consumer, errors, topic, ANSWER_TIMEOUT)
        with answering(connection, consumer, errors):
            return {
                partition: Offsets(
                    *consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT)
                )
                for partition in partitions
            }


def offsets_if_there(connection: KafkaConnection, topic: str) -> dict[int, Offsets]:
    """Do as `offsets`; nothing for a topic that does not exist."""
    try:
        return offsets(connection, topic)
    except TopicMissing:
        return {}


def topic_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, str]:
    """Give the brokers' own names of topics, which a topic that is recreated has not; without those that have none.

    None has one that does not exist, or is not to be seen, or whose brokers are older than Kafka 2.8.
    """
    names = list(topics)
    # Kept in a variable until all answers are there: it takes them along when it goes.
    admin = AdminClient(client_settings(connection))
    asked = admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_TIMEOUT)
    found = {}
    for name in names:
        try:
            made = asked[name].result(ANSWER_TIMEOUT).topic_id
        except KafkaException as error:
            if error.args[0].code() in _NOT_TO_BE_SEEN:
                continue
            brokers = ", ".join(connection.brokers)
            raise KafkaUnreachable(
                f"Kafka at {brokers} cannot tell about topic {name!r}: {error.args[0].str()}; try again"
            ) from error
        words = made.get_most_significant_bits(), made.get_least_significant_bits()
        if any(words):
            found[name] = ":".join(str(word) for word in words)
    return found


class Cleanup(NamedTuple):
    """Topics that are compacted, and those of which this user may not see whether they are."""

    compacted: frozenset[str]
    unknown: frozenset[str]


def cleanup_of(connection: KafkaConnection, topics: Iterable[str]) -> Cleanup:
    """Ask whether compaction removes records from topics; one that does not exist is not compacted.

    Raises `KafkaUnreachable`.
    """
    compacted, unknown = set(), set()
    # Kept in a variable until all answers are there: it takes them along when it goes.
    admin = AdminClient(client_settings(connection))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    for resource, asked in admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT).items():
        try:
            policy = asked.result(ANSWER_TIMEOUT)["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].code() in {*_NOT_TO_BE_SEEN, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    unknown.add(resource.name)
                continue
            brokers = ", ".join(connection.brokers)
            raise KafkaUnreachable(
                f"Kafka at {brokers} cannot tell about topic {resource.name!r}: {error.args[0].str()}; try again"
            ) from error
        if "compact" in policy:
            compacted.add(resource.name)
    return Cleanup(frozenset(compacted), frozenset(unknown))


def commit_offsets(connection: KafkaConnection, group: str, topic: str, committed: dict[int, int]) -> None:
    """Tell the brokers, for lag tools only, the next offset that `group` reads of each partition."""
    positions = [TopicPartition(topic, partition, offset) for partition, offset in committed.items()]
    settings = {"group.id": group}
    with open_consumer(connection, settings) as (consumer, errors), answering(connection, consumer, errors):
        consumer.commit(offsets=positions, asynchronous=False)


def _partitions(
    connection: KafkaConnection, consumer: Consumer, errors: list[KafkaError], topic: str, timeout: float
) -> list[int]:
    found = ask_metadata(connection, consumer, errors, topic, timeout).topics[topic]
    if found.error is None:
        return sorted(found.partitions)
    raise _topic_error(connection, topic, found.error)


def _topic_error(
    connection: KafkaConnection, topic: str, error: KafkaError
) -> TopicMissing | TopicForbidden | KafkaUnreachable:
    """Say what the brokers answer in place of a topic."""
    brokers = ", ".join(connection.brokers)
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return TopicMissing(f"topic {topic!r} does not exist on {brokers}; create it, or correct sources[0].topic")
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return _forbidden(connection, topic, "see it", "DESCRIBE and READ")
    return KafkaUnreachable(f"Kafka at {brokers} cannot tell about topic {topic!r}: {error.str()}; try again")


def _forbidden(connection: KafkaConnection, topic: str, verb: str, rights: str) -> TopicForbidden:
    authenticates = connection.mechanism != "NO_AUTH" and not connection.skip_auth
    if authenticates and connection.username:
        principal = f"user {connection.username!r}"
    elif connection.client_cert:
        principal = "the user of the client's certificate"
    else:
        principal = "the user of this connection"
    return TopicForbidden(
        f"topic {topic!r} on {', '.join(connection.brokers)}: {principal} may not {verb}; grant {rights} on the topic, "
        "or connect as a user that has the right (connection_params), then start the pipeline again, which goes on "
        "where it stopped"
    )


class _Wait:
    """A wait that reports why it waits once for each reason, and gives up after its time; None is for ever."""

    def __init__(self, timeout_seconds: float | None, report: Callable[[str], None]) -> None:
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._report = report
        self._reported: set[str] = set()

    def go_on(self, problem: KafkaUnreachable | TopicMissing) -> None:
        """Pause before the next attempt; raises `problem` when the time is over."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise problem
        reason = _CIRCUMSTANCES.sub("", str(problem))
        if reason not in self._reported:
            self._reported.add(reason)
            self._report(f"waiting: {problem}")
        time.sleep(WAIT_INTERVAL)
