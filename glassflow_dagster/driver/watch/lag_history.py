"""The lag of partitions in seconds, from their end offsets at several times.

Kafka says how many records are unread, not since when. The end offsets of the last minutes say it: the oldest unread
record was there when the end offset first exceeded the offset that is read next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from glassflow_dagster.control.heartbeat import PartitionLag

# Of more samples every second one is dropped, which halves the precision of a lag of an hour and more.
MOST_SAMPLES = 1024


@dataclass
class LagHistory:
    """The end offsets of partitions, as pairs of (time, offset), the oldest first; those that were passed are dropped.

    Records that were there before the first sample count from then on.
    """

    samples: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=dict)

    def lags(
        self, now: float, ends: Mapping[tuple[str, int], int], reached: Mapping[str, Mapping[int, int]]
    ) -> dict[str, dict[int, PartitionLag]]:
        """Return the lag of each partition by topic.

        ends: the end offsets now.
        reached: the offsets to read next.
        now: monotonic seconds.
        A partition that is not in `reached` was not read yet; its lag is not known.
        """
        found: dict[str, dict[int, PartitionLag]] = {}
        for (topic, partition), end in ends.items():
            offset = reached.get(topic, {}).get(partition)
            if offset is not None:
                found.setdefault(topic, {})[partition] = self._lag(now, (topic, partition), end, offset)
        return found

    def _lag(self, now: float, partition: tuple[str, int], end: int, offset: int) -> PartitionLag:
        samples = [*self.samples.get(partition, []), (now, end)]
        unread = [sample for sample in samples if sample[1] > offset]
        self.samples[partition] = unread if len(unread) <= MOST_SAMPLES else unread[::2]
        return PartitionLag(records=max(0, end - offset), seconds=now - unread[0][0] if unread else 0.0)
