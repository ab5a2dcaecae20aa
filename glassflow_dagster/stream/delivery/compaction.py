"""Checks that a repeated batch reads the same records as before, where compaction may have removed some of them.

The offsets of a batch are fixed, its records are not: compaction removes a record when a newer one has the same Kafka
key. With other records the rows of a batch are cut into other blocks, under other insert tokens, and other events are
the first of their dedup key; rows that are in the table already would be inserted again. So the records are counted
before a batch's first insert, and again before it is repeated: as compaction only removes, equal counts mean equal
records.
"""

from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan, CheckpointError, OffsetRanges
from glassflow_dagster.stream.stages.source import read_ranges

RecordCounts = dict[str, dict[int, int]]  # topic -> partition -> records


def count_records(
    spark: SparkSession, config: PipelineConfig, offsets: OffsetRanges, compacted: Collection[str]
) -> RecordCounts:
    """Return the number of records in the offset ranges of compacted topics; an empty dict where none is compacted.

    offsets: topic -> partition -> (first, until), the offsets of a batch.
    compacted: names of topics with compaction.
    """
    ranges = {
        topic: {partition: (first, until) for partition, (first, until) in partitions.items() if first < until}
        for topic, partitions in offsets.items()
        if topic in compacted
    }
    ranges = {topic: partitions for topic, partitions in ranges.items() if partitions}
    if not ranges:
        return {}
    counts: RecordCounts = {topic: dict.fromkeys(partitions, 0) for topic, partitions in ranges.items()}
    records = read_ranges(spark, config.source, topics=list(ranges), ranges=ranges)
    for row in records.groupBy("topic", "partition").count().collect():
        counts[row["topic"]][row["partition"]] = row["count"]
    return counts


def require_same_records(plan: BatchPlan, counts: Mapping[str, Mapping[int, int]]) -> None:
    """Raise `CheckpointError` unless a repeated batch has as many records as its plan counted when it was begun.

    counts: the records of the batch that compacted topics have now, topic -> partition -> count.
    """
    planned_counts = plan.records or {}
    for topic, partitions in counts.items():
        for partition, count in partitions.items():
            planned = planned_counts.get(topic, {}).get(partition)
            if count != planned:
                first_text = "not counted" if planned is None else f"{planned:,}"
                raise CheckpointError(
                    f"topic {topic}, partition {partition}: batch {plan.batch_id}, which was in flight and must be "
                    f"repeated, had {first_text} records when it was started and has {count:,} now: the topic is "
                    "compacted. It is unknown which of its rows are in the table; to continue with what is left, see "
                    "glassflow-dagster run FILE --accept-loss. To prevent this, raise min.compaction.lag.ms of the "
                    "topic"
                )
