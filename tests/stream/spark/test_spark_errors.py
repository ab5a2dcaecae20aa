"""The one-line message of a failed query: the product's own error, a known cause with its remedy, or the exception."""

import pytest

from glassflow_dagster.stream.spark.spark_errors import explain_failure

OURS = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink.
Traceback (most recent call last):
  File "inserts.py", line 90, in insert_block
glassflow_dagster.stores.clickhouse.errors.InsertRefused: a.t accepts no rows: table is read-only (242); fix the table
 SQLSTATE: 39000
"""


WITHIN_THE_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "batch.py", line 130, in _write
    partitions = ordered.mapInArrow(writer, BATCH_OUTCOMES_SCHEMA).collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o607.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed
	at org.apache.spark.scheduler.DAGScheduler.abortStage
"""
ITS_CAUSE = "Caused by: java.lang.IllegalArgumentException: Invalid value for 'x', must be a long\n\tat Long.parse\n"
ITS_PLAN = "=== Streaming Query ===\nCaused by: nothing of the kind\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS, "a.t accepts no rows: table is read-only (242); fix the table"),
        ("[KAFKA_DATA_LOSS.X] Some data may have been lost because", "Kafka no longer has offsets that were not read"),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone",
            "the topic, or a partition of it, no longer exists",
        ),
        ("org.apache.kafka.common.errors.TimeoutException: 60000 ms", "Kafka did not answer in time"),
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error",
            "a state file of the checkpoint is damaged or missing",
        ),
        (
            (
                "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error\nCaused by: org.apache.hadoop.fs.s3a."
                "AWSClientIOException: open s3a://b/p: SdkClientException: Connect timed out: TimeoutException"
            ),
            "the object store of the checkpoint refuses access or does not answer",
        ),
        (
            "java.nio.file.AccessDeniedException: s3a://b/p/offsets/3: 403",
            "the object store of the checkpoint refuses access",
        ),
        (
            "java.io.IOException: Error accessing gs://b/p/offsets/1\nCaused by: java.net.ConnectException: refused",
            "the object store of the checkpoint refuses access or does not answer",
        ),
        (
            "org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException: Operation failed: 403, GET",
            "the object store of the checkpoint refuses access or does not answer",
        ),
        (
            "java.io.IOException: abfs://c@a.dfs.core.windows.net/p/offsets/1: Status code 403\nCaused by: refused",
            "the object store of the checkpoint refuses access or does not answer",
        ),
        (
            "java.io.IOException: Upload failed for 'gs://b/p/offsets/1'\nCaused by: 403 Forbidden",
            "the object store of the checkpoint refuses access",
        ),
        (
            "FileAlreadyExistsException: s3a://b/p/offsets/3: was written by another query",
            "another driver uses this checkpoint, maybe on another host",
        ),
        ("OSError: [Errno 30] Read-only file system: 'x'", "the state folder cannot be written; fix the disk"),
        ("java.io.IOException: No space left on device", "the disk is full"),
        (
            "\n\nSomething new.\nMore of it",
            "RuntimeError: Something new.; see spark.log beside the checkpoint",
        ),
        (
            WITHIN_THE_BATCH + ITS_CAUSE + ITS_PLAN,
            "java.lang.IllegalArgumentException: Invalid value for 'x', must be a long; see spark.log",
        ),
        (
            WITHIN_THE_BATCH + ITS_PLAN,
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed; see",
        ),
        (
            WITHIN_THE_BATCH + "Caused by: java.lang.OutOfMemoryError: Java heap space",
            "Spark's JVM has too little memory",
        ),
        (
            WITHIN_THE_BATCH + "Caused by: io.netty.util.internal.OutOfDirectMemoryError: failed to allocate 5 byte(s)",
            "Spark's JVM has too little memory",
        ),
        (
            'Cannot invoke "x.cleanupQueryJobs(long)" because "org.apache.spark.SparkContext.dagScheduler()" is null',
            "Spark's JVM has too little memory",
        ),
        (
            WITHIN_THE_BATCH + ITS_CAUSE + "Caused by: java.io.EOFException\n\tat Input.read\n",
            "java.lang.IllegalArgumentException: Invalid value for 'x', must be a long; see spark.log",
        ),
        (
            WITHIN_THE_BATCH.replace("Job aborted", "Python worker exited unexpectedly (crashed)"),
            "a Python worker of Spark's ended: it was killed or ran out of memory",
        ),
        ("", "RuntimeError: no reason given"),
    ],
)
def test_a_failure_is_one_line(text: str, line: str) -> None:
    found = explain_failure(RuntimeError(text))
    assert found.startswith(line)
    assert "\n" not in found
