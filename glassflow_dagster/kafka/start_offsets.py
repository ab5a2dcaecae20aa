"""Where a pipeline's first start begins in its topic; later starts go on from the checkpoint."""

from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition

from glassflow_dagster.config.model.fields import START_WORDS
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.consumer import ANSWER_TIMEOUT, answering, open_consumer
from glassflow_dagster.kafka.topics import Offsets, offsets

# librdkafka's words for the two ends, which are Spark's too: -2 is the first record, -1 the one to come.
FIRST, NEXT = OFFSET_BEGINNING, OFFSET_END


class StartUnknown(GlassflowError):
    """The offsets that the definition asks to start from are not there: choose another start, or name the group."""


def starting_offsets(config: PipelineConfig, index: int = 0) -> dict[int, int]:
    """Give the offset that each partition of a source's topic is read from first. index: of the source in `inputs`.

    `FIRST` and `NEXT` stand for the ends. Raises `StartUnknown`, `TopicMissing` or `KafkaUnreachable`.
    """
    source = config.inputs[index]
    start = source.start or source.consumer_group_initial_offset
    known = offsets(source.connection_params, source.topic)
    if start == "committed":
        return _committed(config, source, known)
    if start in START_WORDS:
        return dict.fromkeys(known, FIRST if start == "earliest" else NEXT)
    return _at_time(source, datetime.fromisoformat(start), known)


def _at_time(source: Source, time: datetime, known: dict[int, Offsets]) -> dict[int, int]:
    """Give the first record of each partition that is not older; the end where all are older."""
    milliseconds = round(time.timestamp() * 1000)
    asked = [TopicPartition(source.topic, partition, milliseconds) for partition in known]
    with (
        open_consumer(source.connection_params) as (consumer, errors),
        answering(source.connection_params, consumer, errors),
    ):
        found = consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT)
    # Where there is none, its place is the end as it is now: records that come later are newer.
    return {p.partition: p.offset if p.offset >= 0 else known[p.partition].high for p in found}


def _committed(config: PipelineConfig, source: Source, known: dict[int, Offsets]) -> dict[int, int]:
    """Give what a consumer group would read next; a partition that it never read begins as GlassFlow's would."""
    group = source.consumer_group or config.glassflow_consumer_group
    asked = [TopicPartition(source.topic, partition) for partition in known]
    with (
        open_consumer(source.connection_params, {"group.id": group}) as (consumer, errors),
        answering(source.connection_params, consumer, errors),
    ):
        found = {p.partition: p.offset for p in consumer.committed(asked, timeout=ANSWER_TIMEOUT)}
    if all(offset == OFFSET_INVALID for offset in found.values()):
        raise StartUnknown(
            f"{_at(config, source)}.start: consumer group {group!r} has committed no offset of topic {source.topic!r}; "
            f"name the group in {_at(config, source)}.consumer_group, or start: earliest or latest"
        )
    _require_there(_at(config, source), group, source.topic, found, known)
    otherwise = FIRST if source.consumer_group_initial_offset == "earliest" else NEXT
    return {partition: otherwise if offset == OFFSET_INVALID else offset for partition, offset in found.items()}


def _at(config: PipelineConfig, source: Source) -> str:
    return f"sources[{config.sources.index(source)}]"


def _require_there(at: str, group: str, topic: str, found: dict[int, int], known: dict[int, Offsets]) -> None:
    for partition, offset in found.items():
        low, high = known[partition]
        if offset != OFFSET_INVALID and not low <= offset <= high:
            raise StartUnknown(
                f"{at}.start: consumer group {group!r} stands at offset {offset} of {topic}/{partition}, which "
                f"holds {low} to {high}: retention has removed records that it has not read, or the topic was made "
                "anew; start: earliest reads what is there"
            )
