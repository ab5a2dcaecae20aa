"""Positions of events where a Kafka record is many events (OTLP): the record's position and the event's `item` in it.

Other pipelines do not have these columns, so that they cost them nothing. This module runs inside Spark's Python
workers: it does not import pyspark.
"""

from collections.abc import Collection

# The columns of an event's index in its record, and of its value.
ITEM = "item"
EVENT = "event"
# The drop reason of the row that stands for a record, by which records are counted; its item, the least there is
# (scala/otlp/OtlpSplitter.scala); and the column of its size: the bytes of the record's events, NULL in other rows.
RECORD = "record"
MARK = -2
RECORD_SIZE = "split_size"


def position(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that order the events of a batch, of those that a query has."""
    return ("topic_rank", "partition", "offset", *((ITEM,) if ITEM in columns else ()))
