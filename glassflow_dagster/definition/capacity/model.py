"""The model: from a definition and a load to cores, executors, partitions, memory, and the wall that comes first.

A batch takes as long as the driver's work for its tasks, one after the other, and its events' CPU time, divided among
the cores. While a batch runs, the events of the next one arrive; so a batch grows until both are equal, or until it has
as many records as a batch may have. Beyond that the pipeline falls behind: that is the driver's wall.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from glassflow_dagster.definition.capacity import coefficients as c
from glassflow_dagster.definition.capacity.coefficients import Kind
from glassflow_dagster.definition.model.pipeline import PipelineConfig

# Cores are planned to be busy for this share of the time: a pipeline must catch up after a pause.
TARGET_LOAD = 0.7
# Cores of the driver's host, up to which a pipeline needs no cluster; and those of an executor on one.
CORES_OF_HOST, CORES_OF_EXECUTOR = 16, 4
# The most records of a batch (stream/stages/source.py), and the most blocks.
BATCH_RECORDS, BATCH_BLOCKS = 200_000, 5_000
# Inserts a second into one table that ClickHouse's merges keep up with. Assumed, not measured: its manual advises few
# large inserts.
INSERTS_A_SECOND = 50
# Partitions of topic and state for which the model is meant; they were measured up to 128.
MOST_PARTITIONS = 512


@dataclass(frozen=True)
class Load:
    """What arrives.

    rate: events a second.
    new_share: of events whose key is new within the window.
    window: of deduplication.
    topic_partitions: None for as many as it takes.
    event_bytes: the mean size of a value.
    """

    rate: float
    event_bytes: int
    window: timedelta
    new_share: float
    topic_partitions: int | None


@dataclass(frozen=True)
class Wall:
    """Something that limits the rate: from which rate on, and what would change beyond it."""

    name: str
    rate: float
    remedy: str


@dataclass(frozen=True)
class Plan:
    """What a load needs, and where it ends.

    rate: of the load.
    cores: of Spark's tasks.
    executors: on a cluster; 0 for a pipeline within its driver.
    interval: seconds from batch to batch; infinite where batches fall behind.
    driver_busy: the share of the time in which the driver works for the batches.
    memory_mib: of each process that has state.
    walls: by the rate at which they are reached.
    """

    kind: Kind
    rate: float
    cores: int
    executors: int
    topic_partitions: int
    state_partitions: int
    keys: float
    interval: float
    driver_busy: float
    memory_mib: int
    disk_bytes: float
    clickhouse_cores: float
    kafka_cores: float
    inserts_a_second: float
    upload_bytes_a_second: float
    requests_a_second: float
    walls: tuple[Wall, ...]

    @property
    def is_reached(self) -> bool:
        """Whether the pipeline keeps up with the load, as far as the model is known to hold."""
        return math.isfinite(self.interval) and self.rate <= self.walls[0].rate


def kind_of(config: PipelineConfig) -> Kind:
    """Return what a pipeline does with each event."""
    if config.join is not None:
        return Kind.JOIN
    if config.dedup is None:
        return Kind.STATELESS
    return Kind.DEDUPLICATION if config.dedup.clock == "processing" else Kind.EVENT_CLOCK


def window_of(config: PipelineConfig) -> timedelta:
    """Return how long a pipeline keeps keys or waiting events; 0 for one without a state."""
    dedups = [dedup.time_window for source in config.inputs if (dedup := config.dedup_of(source))]
    sides = [side.time_window for side in config.join.sides] if config.join else []
    return max([*dedups, *sides], default=timedelta())


def make_plan(config: PipelineConfig, load: Load) -> Plan:
    """Return what a pipeline needs for a load."""
    kind = kind_of(config)
    keys = 0.0 if kind is Kind.STATELESS else _keys(load)
    cores, executors = _cores(kind, load, keys)
    state_partitions = _state_partitions(kind, keys, cores)
    topic_partitions = load.topic_partitions or _topic_partitions(kind, load, cores)
    # Without a state, tasks are the topic's partitions.
    used = min(cores, topic_partitions) if kind is Kind.STATELESS else cores
    batch = _Batch(kind, load, used, topic_partitions, state_partitions, bool(executors))
    interval = batch.interval(config.sink.max_delay_time.total_seconds(), _batch_records(config))
    tables, processes = len(config.sink.by_table), max(1, executors)
    tasks = state_partitions or topic_partitions
    blocks = max(tasks, load.rate * interval / config.sink.max_batch_size) if math.isfinite(interval) else math.inf
    requests = c.REQUESTS + c.REQUESTS_OF_STATE_PARTITION * state_partitions
    return Plan(
        kind=kind,
        rate=load.rate,
        cores=cores,
        executors=executors,
        topic_partitions=topic_partitions,
        state_partitions=state_partitions,
        keys=keys,
        interval=interval,
        driver_busy=batch.driver_seconds / interval,
        memory_mib=round(c.MEMORY_MIB + keys * c.MEMORY_BYTES_OF_KEY / processes / 2**20),
        disk_bytes=keys * c.DISK_BYTES_OF_KEY,
        clickhouse_cores=load.rate * c.CLICKHOUSE.of(load.event_bytes) * tables / 1e6,
        kafka_cores=load.rate * c.KAFKA.of(load.event_bytes) / 1e6,
        inserts_a_second=tables * blocks / interval if math.isfinite(interval) else math.inf,
        upload_bytes_a_second=load.rate * load.new_share * c.UPLOAD_BYTES_OF_KEY if state_partitions else 0.0,
        requests_a_second=requests / interval,
        walls=tuple(sorted(_walls(config, kind, load), key=lambda wall: wall.rate)),
    )


@dataclass(frozen=True)
class _Batch:
    """The cost of a batch on so many cores."""

    kind: Kind
    load: Load
    cores: int
    topic_partitions: int
    state_partitions: int
    is_on_cluster: bool

    @property
    def driver_seconds(self) -> float:
        """What the driver does for the batch's tasks, one after the other."""
        of_tasks = (
            c.DRIVER_MS_OF_TOPIC_PARTITION * self.topic_partitions
            + c.DRIVER_MS_OF_STATE_PARTITION * self.state_partitions
        )
        return (c.DRIVER_MS + of_tasks) / 1000

    @property
    def fixed_seconds(self) -> float:
        """The time that a batch takes without an event."""
        of_tasks = (
            c.EXECUTOR_MS_OF_TOPIC_PARTITION * self.topic_partitions
            + c.EXECUTOR_MS_OF_STATE_PARTITION * self.state_partitions
        )
        return self.driver_seconds + (c.EXECUTOR_MS + of_tasks / self.cores) / 1000

    @property
    def seconds_of_event(self) -> float:
        """What an event adds to the time of a batch."""
        factor = c.CLUSTER_FACTOR if self.is_on_cluster else 1.0
        return c.SPARK[self.kind].of(self.load.event_bytes) * factor / 1e6 / self.cores

    def most_rate(self, records: int) -> float:
        """Return the greatest rate that batches of at most so many records reach."""
        return records / (self.fixed_seconds + records * self.seconds_of_event)

    def interval(self, delay: float, records: int) -> float:
        """Return the seconds from batch to batch at the load's rate; infinite where it falls behind.

        delay: the least.
        records: the most of a batch.
        """
        share = self.load.rate * self.seconds_of_event
        if self.load.rate > self.most_rate(records) or share >= 1:
            return math.inf
        return max(delay, self.fixed_seconds / (1 - share))


def _keys(load: Load) -> float:
    return load.rate * load.new_share * load.window.total_seconds()


def _cores(kind: Kind, load: Load, keys: float) -> tuple[int, int]:
    """Return the cores that events and keys need, and the executors; 0 where one host has enough cores."""
    of_events = load.rate * c.SPARK[kind].of(load.event_bytes) / 1e6 / TARGET_LOAD
    cores = max(1, math.ceil(of_events), math.ceil(keys / c.KEYS_OF_CORE))
    if cores <= CORES_OF_HOST:
        return cores, 0
    executors = math.ceil(cores * c.CLUSTER_FACTOR / CORES_OF_EXECUTOR)
    return executors * CORES_OF_EXECUTOR, executors


def _state_partitions(kind: Kind, keys: float, cores: int) -> int:
    """Return the partitions of the state: as many as cores, or a multiple where the keys need more."""
    if kind is Kind.STATELESS:
        return 0
    return cores * max(1, math.ceil(keys / c.KEYS_OF_PARTITION / cores))


def _topic_partitions(kind: Kind, load: Load, cores: int) -> int:
    """Return the partitions that a topic needs; with a state, several tasks may read one of them."""
    needed = max(1, math.ceil(load.rate / c.EVENTS_OF_TOPIC_PARTITION))
    return max(needed, cores) if kind is Kind.STATELESS else needed


def _batch_records(config: PipelineConfig) -> int:
    return min(BATCH_RECORDS, BATCH_BLOCKS * config.sink.max_batch_size)


def _walls(config: PipelineConfig, kind: Kind, load: Load) -> Iterator[Wall]:
    """Yield what limits the rate, whatever the number of cores."""
    yield Wall(
        "driver",
        max(_rate_on(config, kind, load, cores) for cores in range(1, MOST_PARTITIONS + 1)),
        "more records a batch (MAX_BATCH_RECORDS, and as many insert tokens), or the topic divided among pipelines",
    )
    yield Wall(
        "inserts into ClickHouse",
        INSERTS_A_SECOND * config.sink.max_batch_size,
        "a greater sink.max_batch_size or max_delay_time; then a sharded table",
    )
    if kind is not Kind.STATELESS and _keys(load):
        yield Wall(
            "keys",
            MOST_PARTITIONS * c.KEYS_OF_PARTITION / _keys(load) * load.rate,
            "a shorter window, or several pipelines, each with a part of the topics",
        )
    if load.topic_partitions:
        yield Wall(
            "partitions of the topic",
            load.topic_partitions * c.EVENTS_OF_TOPIC_PARTITION
            if kind is not Kind.STATELESS
            else load.topic_partitions * TARGET_LOAD * 1e6 / c.SPARK[kind].of(load.event_bytes),
            "more partitions of the topic",
        )


def _rate_on(config: PipelineConfig, kind: Kind, load: Load, cores: int) -> float:
    """Return the greatest rate on so many cores, with as many partitions."""
    executors = cores > CORES_OF_HOST
    state = 0 if kind is Kind.STATELESS else cores
    topic = cores if kind is Kind.STATELESS else max(1, cores // 8)
    return _Batch(kind, load, cores, topic, state, executors).most_rate(_batch_records(config))
