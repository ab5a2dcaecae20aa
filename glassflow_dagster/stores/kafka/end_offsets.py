"""Reads the end offsets of many partitions with one request to each broker, again and again on one connection."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable

# What the client and the broker say of a partition that does not exist (any more).
_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


@dataclass(frozen=True)
class EndOffsets:
    """A connection to the brokers, for repeated requests.

    isolation: of the reader; with read_committed a partition ends before its first open transaction.
    """

    admin: AdminClient
    brokers: tuple[str, ...]
    isolation: IsolationLevel

    @classmethod
    def open(cls, connection: KafkaConnection, isolation: str) -> "EndOffsets":
        """Prepare the connection; it is made with the first request. isolation: of the source."""
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        return cls(AdminClient(client_settings(connection)), tuple(connection.brokers), level)

    def read(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the offset of the next record of each partition, for this reader; one that is gone is left out.

        Raises `KafkaUnreachable` when a broker does not answer.
        """
        return self._read(partitions, self.isolation)

    def read_with_behind(
        self, partitions: Sequence[tuple[str, int]]
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Return `read`, and how many offsets the reader cannot read yet, as a transaction before them is open.

        Of the latter, partitions without any are left out. Offsets of markers count, too. Raises what `read` raises.
        """
        is_all_readable = self.isolation == IsolationLevel.READ_UNCOMMITTED
        # First, so that what is written in between does not count.
        written = {} if is_all_readable else self._read(partitions, IsolationLevel.READ_UNCOMMITTED)
        ends = self.read(partitions)
        behind = {partition: end - ends.get(partition, end) for partition, end in written.items()}
        return ends, {partition: offsets for partition, offsets in behind.items() if offsets > 0}

    def _read(self, partitions: Sequence[tuple[str, int]], isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(*partition): latest for partition in partitions}
        if not asked:
            return {}
        answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=ANSWER_TIMEOUT)
        found = {}
        for partition, answer in answers.items():
            try:
                found[partition.topic, partition.partition] = answer.result(ANSWER_TIMEOUT).offset
            except TimeoutError as error:
                raise self._unreachable("no answer") from error
            except KafkaException as error:
                code = error.args[0].code()
                if code not in _GONE:
                    raise self._unreachable(error.args[0].str()) from error
        return found

    def _unreachable(self, reason: str) -> KafkaUnreachable:
        return KafkaUnreachable(f"Kafka at {', '.join(self.brokers)} cannot list offsets: {reason}; try again")
