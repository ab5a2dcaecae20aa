"""Dead letters that come again, over the pipeline's own replay topic."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.kafka.replay_headers import CHECKPOINT_ID, ORIGIN_TOPIC, PASSED_DEDUP


def mark_replays(events: DataFrame, replay_topic: str, checkpoint_id: str) -> DataFrame:
    """Tell replays that belong to this checkpoint from those of an earlier one.

    Columns in: topic, headers, error, drop_reason. Columns added: replayed BOOLEAN, whether the record is a replay of
    this checkpoint's; exempt BOOLEAN, whether deduplication let it pass when it was read for the first time, so that it
    would take it for a duplicate of itself.
    Column changed: drop_reason, 'filtered' for a replay that was sent to an earlier checkpoint, which is no dead letter
    then: this one has read its source anew, and with it the record itself.
    """
    sent_to = F.when(F.col("topic") == F.lit(replay_topic), _header(CHECKPOINT_ID))
    foreign = F.coalesce(sent_to != F.lit(checkpoint_id), F.lit(0).cast("boolean"))
    replayed = F.coalesce(sent_to == F.lit(checkpoint_id), F.lit(0).cast("boolean"))
    return (
        events.withColumn("replayed", replayed)
        .withColumn("exempt", F.col("replayed") & _header(PASSED_DEDUP).isNotNull())
        .withColumn("drop_reason", F.when(foreign, F.lit("filtered")).otherwise(F.col("drop_reason")))
        .withColumn("error", F.when(~foreign, F.col("error")))
    )


def origin_topic(replay_topic: str) -> Column:
    """Give the topic that a record was first read from. Columns in: topic, headers."""
    origin = F.when(F.col("topic") == F.lit(replay_topic), _header(ORIGIN_TOPIC))
    return F.coalesce(origin, F.col("topic"))


def _header(name: str) -> Column:
    """Give a header's value as text; NULL where there is none."""
    found = F.filter("headers", lambda header: header["key"] == F.lit(name))
    return F.get(found, F.lit(0))["value"].cast("string")
