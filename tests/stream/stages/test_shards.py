"""The shards of the keys: checkpoints store them, so any change would forget all keys."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

PER_PARTITION = 16


@pytest.mark.parametrize("partitions", [1, 2, 3, 64])
def test_a_key_is_in_one_of_the_first_numbers_of_each_partition(spark: SparkSession, partitions: int) -> None:
    """Spark's own hash says to which partition a number belongs, and which of the numbers a key gets."""
    numbered = spark.range(PER_PARTITION * partitions * 20).select(F.col("id").cast("int").alias("number"))
    owned = numbered.select("number", F.pmod(F.hash("number"), F.lit(partitions)).alias("partition"))
    of_partition: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    for row in owned.orderBy("number").collect():
        if len(of_partition[row["partition"]]) < PER_PARTITION:
            of_partition[row["partition"]].append(row["number"])
    shards = [number for partition in range(partitions) for number in of_partition[partition]]
    assert len(shards) == PER_PARTITION * partitions

    keys = spark.range(500).select(F.concat(F.lit(b"\x01"), F.col("id").cast("string").cast("binary")).alias("key"))
    found = keys.select(
        F.call_function("glassflow_shard", "key", F.lit(partitions)).alias("shard"),
        F.pmod(F.hash("key"), F.lit(len(shards))).alias("index"),
    ).collect()
    assert [row["shard"] for row in found] == [shards[row["index"]] for row in found]
