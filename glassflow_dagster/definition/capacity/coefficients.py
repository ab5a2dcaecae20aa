"""The coefficients of the model, each with the benchmark that it comes from (benchmarks/results).

CPU times are those of the machine in the results (AMD EPYC, two cores). docs/concepts/capacity.md says how far off they
are.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a pipeline does with each event."""

    STATELESS = "stateless"
    DEDUPLICATION = "deduplication"
    EVENT_CLOCK = "deduplication on the event clock"
    JOIN = "join"


@dataclass(frozen=True)
class PerEvent:
    """Microseconds of CPU time for an event: a base, and what each byte of it adds."""

    base: float
    of_byte: float

    def of(self, event_bytes: int) -> float:
        """Return the microseconds for an event of so many bytes."""
        return self.base + self.of_byte * event_bytes


# shapes: 190 bytes, and 1.5 kB in few and in 40 fields. On the event clock and in a join each key is a group of its
# own: joins, 78,600 events a second with both sides deduplicated on two cores that also run broker and ClickHouse; the
# event clock was not measured alone, and counts as one.
SPARK = {
    Kind.STATELESS: PerEvent(3.1, 0.0081),
    Kind.DEDUPLICATION: PerEvent(8.2, 0.0150),
    Kind.EVENT_CLOCK: PerEvent(16.0, 0.0150),
    Kind.JOIN: PerEvent(16.0, 0.0150),
}
CLICKHOUSE = PerEvent(0.1, 0.0088)
KAFKA = PerEvent(0.4, 0.0012)

# scale: an event's CPU time on two workers, divided by that within the driver: 16.8 and 13.0 microseconds.
CLUSTER_FACTOR = 1.3

# CPU milliseconds of a batch that Spark runs as a job, and what each task adds; of the driver, which does this one
# after the other, and of the executors, which do it at once. capacity: what each partition adds, from 2 to 128 of them.
# What it finds beside them (535 and 319) is that of the first ten batches of a driver, in which Java still compiles: so
# the driver's 250 are those of a batch of few records later on, and the executors' 20 are estimated.
DRIVER_MS, DRIVER_MS_OF_TOPIC_PARTITION, DRIVER_MS_OF_STATE_PARTITION = 250.0, 1.2, 7.4
EXECUTOR_MS, EXECUTOR_MS_OF_TOPIC_PARTITION, EXECUTOR_MS_OF_STATE_PARTITION = 20.0, 7.0, 52.0

# depth: at 100 million keys 2,351 MiB, of which 1,230 MiB are needed without keys; 53 bytes a key in the newest version
# of the state, and 112 with the files that compactions have just replaced.
MEMORY_MIB, MEMORY_BYTES_OF_KEY = 1230, 12
DISK_BYTES_OF_KEY = 112
# depth: the rate falls by a third between 90 and 100 million keys on two partitions. Up to half of that it is even.
KEYS_OF_PARTITION = 25_000_000
# And of a core: 100 million keys on two.
KEYS_OF_CORE = 50_000_000

# limits: 869,400 events of 190 bytes a second, read by Spark from two partitions.
EVENTS_OF_TOPIC_PARTITION = 400_000

# The bytes that a new key adds to the checkpoint with its batch. capacity: 60 in batches of 450 new keys on two
# partitions, and 135 on 128, where each has four keys.
UPLOAD_BYTES_OF_KEY = 120
# Requests of a batch to an object store: offsets, plan, commit and their checks, and those of each state partition.
# With two partitions some 20 were counted; how they divide is estimated.
REQUESTS, REQUESTS_OF_STATE_PARTITION = 12, 4
