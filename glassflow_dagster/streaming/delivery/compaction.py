"""Whether a batch that is repeated reads the records that it read before, where compaction may have removed some.

The offsets of a batch are fixed, its records are not: compaction takes those away that have a newer one of their Kafka
key. With other records the rows of a batch are cut into other blocks, other events of a key come first, and what is in
the table already would come again. So the records are counted before the first insert, and again before a repetition:
compaction only removes, so as many are the same ones.
"""

from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.streaming.checkpoint.checkpoint import BatchPlan, CheckpointError, OffsetRanges
from glassflow_dagster.streaming.stages.source import read_ranges

RecordCounts = dict[str, dict[int, int]]  # topic -> partition -> records


def count_records(
    spark: SparkSession, config: PipelineConfig, offsets: OffsetRanges, compacted: Collection[str]
) -> RecordCounts:
    """Count what the compacted ones of the topics hold between two offsets; nothing where none is compacted."""
    ranges = {
        topic: {partition: span for partition, span in partitions.items() if span[0] < span[1]}
        for topic, partitions in offsets.items()
        if topic in compacted
    }
    ranges = {topic: partitions for topic, partitions in ranges.items() if partitions}
    if not ranges:
        return {}
    counts: RecordCounts = {topic: dict.fromkeys(partitions, 0) for topic, partitions in ranges.items()}
    found = read_ranges(spark, config.source, list(ranges), ranges).groupBy("topic", "partition").count().collect()
    for row in found:
        counts[row["topic"]][row["partition"]] = row["count"]
    return counts


def require_same_records(plan: BatchPlan, counts: Mapping[str, Mapping[int, int]]) -> None:
    """Raise `CheckpointError` unless a batch that is repeated has the records that were counted when it was begun.

    counts: as `count_records` gives them now.
    """
    before = plan.records or {}
    for topic, partitions in counts.items():
        for partition, count in partitions.items():
            first = before.get(topic, {}).get(partition)
            if count != first:
                first_text = "not counted" if first is None else f"{first:,}"
                raise CheckpointError(
                    f"topic {topic}, partition {partition}: batch {plan.batch_id}, which was under way and has to be "
                    f"repeated, had {first_text} records when it was begun and has {count:,} now: the topic is "
                    "compacted. What of it is in the table cannot be told from what is not; to go on with what is "
                    "left, see glassflow-dagster run FILE --accept-loss. A longer min.compaction.lag.ms of the topic "
                    "keeps that from happening again"
                )
