"""The offsets at which a pipeline's first start begins to read; later starts continue from the checkpoint."""

from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition

from glassflow_dagster.definition.model.fields import START_WORDS
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.consumer import ANSWER_TIMEOUT, convert_kafka_errors, open_consumer
from glassflow_dagster.stores.kafka.topics import Offsets, offsets

# Placeholders for a partition's beginning (-2) and end (-1), the same in librdkafka and Spark.
FIRST, NEXT = OFFSET_BEGINNING, OFFSET_END


class StartUnknown(GlassflowError):
    """The offsets to start from do not exist: choose another `start`, or name the consumer group."""


def starting_offsets(config: PipelineConfig, index: int = 0) -> dict[str, dict[int, int]]:
    """Return the first offset to read: topic -> partition -> offset, or `FIRST` or `NEXT` for its beginning or end.

    The source's `start` is `committed` (the offsets of a consumer group), `earliest`, `latest`, or a time in ISO 8601;
    without it `consumer_group_initial_offset` counts. index: of the source in `config.inputs`. Raises `StartUnknown`,
    `TopicMissing` or `KafkaUnreachable`.
    """
    source = config.inputs[index]
    start = source.start or source.consumer_group_initial_offset
    available = {topic: offsets(source.connection_params, topic) for topic in source.topic_names}
    if start == "committed":
        return _committed(config, source, available)
    if start in START_WORDS:
        first = FIRST if start == "earliest" else NEXT
        return {topic: dict.fromkeys(partitions, first) for topic, partitions in available.items()}
    time = datetime.fromisoformat(start)
    return {topic: _at_time(source, topic, time, partitions) for topic, partitions in available.items()}


def _at_time(source: Source, topic: str, time: datetime, available: dict[int, Offsets]) -> dict[int, int]:
    """Return the offset of each partition's first record at or after a time; its end when all records are older."""
    milliseconds = round(time.timestamp() * 1000)
    # offsets_for_times() takes the time in place of the offset.
    times = [TopicPartition(topic, partition, milliseconds) for partition in available]
    with (
        open_consumer(source.connection_params) as (consumer, errors),
        convert_kafka_errors(source.connection_params, consumer, errors),
    ):
        first_records = consumer.offsets_for_times(times, timeout=ANSWER_TIMEOUT)
    # A negative offset stands for no such record; then the partition is read from its current end, as later records are
    # newer.
    return {p.partition: p.offset if p.offset >= 0 else available[p.partition].high for p in first_records}


def _committed(
    config: PipelineConfig, source: Source, available: dict[str, dict[int, Offsets]]
) -> dict[str, dict[int, int]]:
    """Return the offsets that a consumer group has committed.

    A partition without a committed offset starts at `consumer_group_initial_offset`, as in GlassFlow. Raises
    `StartUnknown` when the group has committed no offset, or one that is outside the available offsets.
    """
    path, group = f"sources[{config.sources.index(source)}]", source.consumer_group or config.glassflow_consumer_group
    positions = [TopicPartition(topic, partition) for topic, found in available.items() for partition in found]
    with (
        open_consumer(source.connection_params, {"group.id": group}) as (consumer, errors),
        convert_kafka_errors(source.connection_params, consumer, errors),
    ):
        committed = consumer.committed(positions, timeout=ANSWER_TIMEOUT)
    if all(position.offset == OFFSET_INVALID for position in committed):
        topics = ", ".join(map(repr, source.topic_names))
        raise StartUnknown(
            f"{path}.start: consumer group {group!r} has committed no offset of topic {topics}; "
            f"name the group in {path}.consumer_group, or start: earliest or latest"
        )
    initial = FIRST if source.consumer_group_initial_offset == "earliest" else NEXT
    starting: dict[str, dict[int, int]] = {topic: {} for topic in available}
    for position in committed:
        _require_available(path, group, position, available[position.topic][position.partition])
        is_committed = position.offset != OFFSET_INVALID
        starting[position.topic][position.partition] = position.offset if is_committed else initial
    return starting


def _require_available(path: str, group: str, position: TopicPartition, available: Offsets) -> None:
    """Raise `StartUnknown` for a committed offset that retention has removed or that is behind the partition's end.

    path: of the source in the definition. A partition without a committed offset is not checked.
    """
    low, high = available
    if position.offset != OFFSET_INVALID and not low <= position.offset <= high:
        raise StartUnknown(
            f"{path}.start: consumer group {group!r} is at offset {position.offset} of "
            f"{position.topic}/{position.partition}, which holds {low} to {high}: retention has removed records that "
            "it has not read, or the topic was recreated; start: earliest reads what is left"
        )
