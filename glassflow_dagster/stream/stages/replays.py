"""Replayed dead letters: records that come again through the pipeline's replay topic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.stores.kafka.replay_headers import CHECKPOINT_ID, ONLY_TABLE, ORIGIN_TOPIC, PASSED_DEDUP


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
    # A row that is dropped already keeps its reason.
    drop_reason = F.coalesce(F.col("drop_reason"), F.when(of_earlier_checkpoint, F.lit("filtered")))
    return (
        events.withColumn("replayed", replayed)
        .withColumn("exempt", F.col("replayed") & has_replay_header(PASSED_DEDUP))
        .withColumn("drop_reason", drop_reason)
        .withColumn("error", F.when(~of_earlier_checkpoint, F.col("error")))
    )


def origin_topic(replay_topic: str) -> Column:
    """Return the topic that a record was first read from, STRING. Columns in: topic, headers."""
    origin = F.when(F.col("topic") == F.lit(replay_topic), _header(ORIGIN_TOPIC))
    return F.coalesce(origin, F.col("topic"))


def replayed_for() -> Column:
    """Return the only table that lacks a replayed event, as `database.table`, STRING; NULL for any other event.

    Columns in: replayed, headers.
    """
    return F.when(F.col("replayed"), _header(ONLY_TABLE))


def has_replay_header(name: str) -> Column:
    """Return a condition, BOOLEAN, never NULL: the record has a header of a name. Column in: headers."""
    return F.coalesce(_header(name).isNotNull(), F.lit(0).cast("boolean"))


def _header(name: str) -> Column:
    """Return the value of the first header of a name, STRING; NULL where there is none."""
    matching = F.filter("headers", lambda header: header["key"] == F.lit(name))
    return F.get(matching, F.lit(0))["value"].cast("string")
