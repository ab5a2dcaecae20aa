"""Rows that are computed once."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.driver.recovery.records import computed


def test_computed_rows_forget_the_plan_that_led_to_them(spark: SparkSession) -> None:
    rows = spark.range(3).select((F.col("id") * 7).alias("made"))
    found = computed(rows)
    assert "Range (" in rows._jdf.queryExecution().logical().toString()
    assert "Range (" not in found._jdf.queryExecution().logical().toString()
    assert sorted(row["made"] for row in found.collect()) == [0, 7, 14]
