"""The offsets at which a pipeline's first start begins to read; later starts continue from the checkpoint."""

from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition

from glassflow_dagster.config.model.fields import START_WORDS
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.consumer import ANSWER_TIMEOUT, answering, open_consumer
from glassflow_dagster.kafka.topics import Offsets, offsets

# Placeholders for a partition's beginning (-2) and end (-1), the same in librdkafka and Spark.
FIRST, NEXT = OFFSET_BEGINNING, OFFSET_END


class StartUnknown(GlassflowError):
    """The offsets to start from do not exist: choose another `start`, or name the consumer group."""


def starting_offsets(config: PipelineConfig, index: int = 0) -> dict[int, int]:
    """Return the first offset to read: partition -> offset, or `FIRST` or `NEXT` for a partition's beginning or end.

    index: of the source in `config.inputs`. Raises `StartUnknown`, `TopicMissing` or `KafkaUnreachable`.
    """
    source = config.inputs[index]
    start = source.start or source.consumer_group_initial_offset
    available = offsets(source.connection_params, source.topic)
    if start == "committed":
        return _committed(config, source, available)
    if start in START_WORDS:
        return dict.fromkeys(available, FIRST if start == "earliest" else NEXT)
    return _at_time(source, datetime.fromisoformat(start), available)


def _at_time(source: Source, time: datetime, available: dict[int, Offsets]) -> dict[int, int]:
    """Return the offset of each partition's first record at or after a time; its end when all records are older."""
    milliseconds = round(time.timestamp() * 1000)
    times = [TopicPartition(source.topic, partition, milliseconds) for partition in available]
    with (
        open_consumer(source.connection_params) as (consumer, errors),
        answering(source.connection_params, consumer, errors),
    ):
        found = consumer.offsets_for_times(times, timeout=ANSWER_TIMEOUT)
    # A partition without such a record is read from its current end: records to come are newer.
    return {p.partition: p.offset if p.offset >= 0 else available[p.partition].high for p in found}


def _committed(config: PipelineConfig, source: Source, available: dict[int, Offsets]) -> dict[int, int]:
    """Return the offsets that a consumer group has committed.

    A partition without a committed offset starts at `consumer_group_initial_offset`, as in GlassFlow. Raises
    `StartUnknown` when the group has committed no offset, or one that is outside the available offsets.
    """
    path, group = f"sources[{config.sources.index(source)}]", source.consumer_group or config.glassflow_consumer_group
    partitions = [TopicPartition(source.topic, partition) for partition in available]
    with (
        open_consumer(source.connection_params, {"group.id": group}) as (consumer, errors),
        answering(source.connection_params, consumer, errors),
    ):
        committed = {p.partition: p.offset for p in consumer.committed(partitions, timeout=ANSWER_TIMEOUT)}
    if all(offset == OFFSET_INVALID for offset in committed.values()):
        raise StartUnknown(
            f"{path}.start: consumer group {group!r} has committed no offset of topic {source.topic!r}; "
            f"name the group in {path}.consumer_group, or start: earliest or latest"
        )
    _require_available(path, group, source.topic, committed, available)
    otherwise = FIRST if source.consumer_group_initial_offset == "earliest" else NEXT
    return {partition: otherwise if offset == OFFSET_INVALID else offset for partition, offset in committed.items()}


def _require_available(
    path: str, group: str, topic: str, committed: dict[int, int], available: dict[int, Offsets]
) -> None:
    """Raise `StartUnknown` for a committed offset that retention has removed or that is behind the partition's end."""
    for partition, offset in committed.items():
        low, high = available[partition]
        if offset != OFFSET_INVALID and not low <= offset <= high:
            raise StartUnknown(
                f"{path}.start: consumer group {group!r} is at offset {offset} of {topic}/{partition}, which holds "
                f"{low} to {high}: retention has removed records that it has not read, or the topic was recreated; "
                "start: earliest reads what is left"
            )
