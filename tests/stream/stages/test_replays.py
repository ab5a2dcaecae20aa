"""Which records of the replay topic skip deduplication, and which belong to another checkpoint."""

from pyspark.sql import SparkSession

from glassflow_dagster.stores.kafka.replay_headers import Header, Replay
from glassflow_dagster.stream.stages.replays import mark_replays

SCHEMA = (
    "topic string, headers array<struct<key string, value binary>>, error struct<reason string>, drop_reason string, "
    "name string"
)


def sent(checkpoint_id: str, *, passed_dedup: bool) -> list[Header]:
    return Replay(checkpoint_id, "t", 0, 1, 1, passed_dedup=passed_dedup).headers()


def test_only_this_checkpoints_replays_are_believed_and_only_on_the_replay_topic(spark: SparkSession) -> None:
    cases: list[tuple[str, str, list[Header] | None, bool]] = [
        ("not claimed", "r", sent("mine", passed_dedup=False), False),
        ("claimed", "r", sent("mine", passed_dedup=True), False),
        ("on the source", "s", sent("mine", passed_dedup=True), False),
        ("earlier, on the source", "s", sent("other", passed_dedup=True), False),
        ("earlier", "r", sent("other", passed_dedup=True), False),
        ("earlier and refused", "r", sent("other", passed_dedup=True), True),
        ("dead_letter", "r", sent("mine", passed_dedup=True), True),
        ("by hand", "r", [("h", None)], False),
        ("no headers", "r", None, False),
    ]
    rows = [(topic, headers, ("why",) if refused else None, None, name) for name, topic, headers, refused in cases]
    found = mark_replays(spark.createDataFrame(rows, SCHEMA), "r", "mine").collect()
    assert {row["name"] for row in found if row.replayed} == {"not claimed", "claimed", "dead_letter"}
    assert {row["name"] for row in found if row.exempt} == {"claimed", "dead_letter"}
    assert {row["name"] for row in found if row.drop_reason == "filtered"} == {"earlier", "earlier and refused"}
    assert {row["name"] for row in found if row.error} == {"dead_letter"}
