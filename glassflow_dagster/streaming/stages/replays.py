"""Replayed dead letters: records that come again through the pipeline's replay topic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.kafka.replay_headers import CHECKPOINT_ID, ORIGIN_TOPIC, PASSED_DEDUP


def mark_replays(events: DataFrame, replay_topic: str, checkpoint_id: str) -> DataFrame:
    """Mark replayed records of this checkpoint, and drop those that were meant for an earlier one.

    Columns in: topic, headers, error, drop_reason. Columns added: replayed BOOLEAN, true for a replay of this
    checkpoint's record; exempt BOOLEAN, true where its first reading has passed deduplication, which would now take the
    record for a duplicate of itself.
    Columns changed: drop_reason, 'filtered', and error, NULL, for a replay to an earlier checkpoint: this checkpoint
    has read the source again from its start, and the record with it.
    """
    # NULL for a record of another topic, which is neither of the following.
    sent_to_checkpoint = F.when(F.col("topic") == F.lit(replay_topic), _header(CHECKPOINT_ID))
    of_earlier_checkpoint = F.coalesce(sent_to_checkpoint != F.lit(checkpoint_id), F.lit(0).cast("boolean"))
    replayed = F.coalesce(sent_to_checkpoint == F.lit(checkpoint_id), F.lit(0).cast("boolean"))
    return (
        events.withColumn("replayed", replayed)
        .withColumn("exempt", F.col("replayed") & _header(PASSED_DEDUP).isNotNull())
        .withColumn("drop_reason", F.when(of_earlier_checkpoint, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .withColumn("error", F.when(~of_earlier_checkpoint, F.col("error")))
    )


def origin_topic(replay_topic: str) -> Column:
    """Return the topic that a record was first read from, STRING. Columns in: topic, headers."""
    origin = F.when(F.col("topic") == F.lit(replay_topic), _header(ORIGIN_TOPIC))
    return F.coalesce(origin, F.col("topic"))


def _header(name: str) -> Column:
    """Return the value of the first header of a name, STRING; NULL where there is none."""
    matching = F.filter("headers", lambda header: header["key"] == F.lit(name))
    return F.get(matching, F.lit(0))["value"].cast("string")
