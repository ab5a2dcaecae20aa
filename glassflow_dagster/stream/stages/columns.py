"""The columns that cross a seam: between Python's stages and Scala's, and from a query to the workers that write.

Each is named and described here alone. This module runs inside Spark's Python workers: it does not import pyspark.
"""

from collections.abc import Collection

# The columns of an event's index in its record, and of its value, where a Kafka record is many events (OTLP). Other
# pipelines do not have them, so that they cost them nothing. ITEM INT, EVENT BINARY.
ITEM = "item"
EVENT = "event"
# The drop reason of the row that stands for a record, by which records are counted; its item, the least there is
# (scala/otlp/OtlpSplitter.scala); and the column of its size: the bytes of the record's events, NULL in other rows.
RECORD = "record"
MARK = -2
RECORD_SIZE = "split_size"

# A record beside its position, as a query ends with it. At most one of row, dead_letter and drop_reason is set; none of
# them for a record that is only counted, such as a duplicate.
PAYLOAD = (
    # BINARY, the values of the table's columns in RowBinary; with several tables STRUCT<table INT, values BINARY>, and
    # an ARRAY of these where an event may go to all of them.
    "row",
    "size",  # INT, bytes of the raw record
    "timestamp",  # LONG, Kafka's, milliseconds since 1970; NULL where it is not known, as for a joined row
    "dead_letter",  # STRUCT; its topic is NULL where the record must be read again
    "drop_reason",  # STRING: filtered, late, record
)
# LONG, how many other records of its key a row stands for, beside the payload.
DUPLICATES = "duplicates"
# INT, in a worker: how often Spark has begun this stage before.
STAGE_ATTEMPT = "stage_attempt"

# An event of a join's inputs beside its position and `DUPLICATES`, as deduplication and the join take it.
JOIN_INPUT = (
    "source",  # INT: 0 left, 1 right
    "join_key",  # BINARY, NULL where a part of the key is null
    "time",  # LONG, microseconds since 1970, NULL on the processing clock
    "max_event_time",  # LONG, the newest of the source's, like time
    "keep_late",  # BOOLEAN: a late event is joined all the same
    "body",  # BINARY, the event's output fields
    "size",
    "dead_letter",
    "drop_reason",
)
# A joined row beside its position, which is the left event's, and `size`, `dead_letter` and `drop_reason`. A record
# that is no joined row (a dead letter, a dropped record, or a row with counts only) has NULL in left.
JOINED = (
    "right_topic_rank",  # INT, as the position of the right event
    "right_partition",  # INT
    "right_offset",  # LONG, -1 without a right event
    "left",  # BINARY, its body
    "right",  # BINARY, its body; NULL where the left event has no match
)
# The counts that a join's state adds to its rows, of the records that the row stands for: each is a LONG column of the
# query and a field of `Outcomes`.
TALLIES = (DUPLICATES, "taken", "accepted", "matched", "unmatched", "waiting", "late", "null_keys")
# The newest event time of each source of a join, LONG, microseconds since 1970.
MAX_EVENT_TIMES = ("left_max_event_time", "right_max_event_time")
# The newest event time of a source without an event.
NO_EVENT_TIME = -(2**63)


def position(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that order the events of a batch, of those that a query has: INT, INT, LONG, and `ITEM`."""
    return ("topic_rank", "partition", "offset", *((ITEM,) if ITEM in columns else ()))
