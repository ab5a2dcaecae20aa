"""The Kafka connector from runtime/ivy.xml with the Spark version from pyproject.toml: their versions differ.

The behaviour that the source relies on is tested with a real broker, so that a change of either version shows. No time
is measured: a delay is either endless, or only waited for.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.kafka_settings import PASSED_ON
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stores.kafka.client import spark_options
from glassflow_dagster.stream.inline_or_job import INLINE_BYTES
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.stages.source import BatchLimits, Subscription, kafka_stream, read_ranges, read_records
from tests.servers.stack import Stack
from tests.support.sending import Sender

CONFIG = load_pipeline(Path("pipelines/sms_status.yaml"), {})
DEADLINE = 60.0  # seconds
DAY = 86_400_000  # milliseconds
FIRST = 1_700_000_000_000  # milliseconds since 1970
FAILURES = (PySparkException, Py4JJavaError)
# Spark's error for lost records, when it plans a batch or when it reads one.
_LOST = re.compile(r"DATA_LOSS|data may have been lost|OffsetOutOfRange|out of range", re.IGNORECASE)


class Topic:
    """A topic of one test, with two partitions."""

    def __init__(self, stack: Stack, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self.name = f"t{uuid.uuid4().hex[:10]}"
        self.options = {"kafka.bootstrap.servers": stack.kafka, "subscribe": self.name, "includeHeaders": "true"}
        self._brokers = stack.kafka
        self._admin = AdminClient({"bootstrap.servers": stack.kafka})
        self._admin.create_topics([NewTopic(self.name, 2, 1, config={**settings})])[self.name].result(30)

    def send(self, values: list[str], partition: int = 0, timestamp: int = FIRST) -> None:
        sender = Sender(self._brokers)
        for value in values:
            sender.send(self.name, value, "k", partition, timestamp=timestamp, headers=[("h", b"1"), ("h", None)])
        sender.flush()

    def lose(self, until: int) -> None:
        """Delete the first partition's records before an offset, as retention does."""
        place = TopicPartition(self.name, 0, until)
        self._admin.delete_records([place])[place].result(30)

    def source(self) -> Source:
        connection = {**CONFIG.connection.model_dump(), "brokers": [self._brokers]}
        return Source.model_validate(
            {**CONFIG.source.model_dump(), "topic": self.name, "connection_params": connection}
        )

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("kafka").options(**self.options, **options).load()

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.readStream.format("kafka").options(**self.options, startingOffsets="earliest", **options).load()


@pytest.fixture
def topic(stack: Stack) -> Topic:
    return Topic(stack)


class Batches:
    """Runs a stream and keeps the records of each batch."""

    def __init__(self, stream: DataFrame, checkpoint: Path) -> None:
        self.seen: list[list[str]] = []
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))
        self._writer = writer

    def start(self) -> StreamingQuery:
        return self._writer.start()

    def run_through(self) -> None:
        self._writer.trigger(availableNow=True).start().awaitTermination()

    def _keep(self, batch: DataFrame, _batch_id: int) -> None:
        self.seen.append(sorted(row.value.decode() for row in batch.select("value").collect()))


def stream_of(spark: SparkSession, source: Source, topic: Topic, limits: BatchLimits) -> DataFrame:
    """Return the topic's records as a stream that ends with them, as the stages of a pipeline take it."""
    subscription = Subscription((topic.name,), {})
    stream = kafka_stream(spark, source, subscription, limits, topic.name, until_caught_up=True)
    return read_records(stream, subscription.topics)


def wait_until(condition: Callable[[], Any], query: StreamingQuery) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def has_seen(query: StreamingQuery, topic: Topic, records: int) -> bool:
    """Return whether the broker has told the query that the topic's first partition has this many records."""
    progress = query.lastProgress
    latest = progress.sources[0].latestOffset if progress else None
    return bool(latest) and json.loads(latest)[topic.name]["0"] == records


def test_javas_client_takes_each_setting_that_is_passed_on(spark: SparkSession, topic: Topic, stack: Stack) -> None:
    """Also together, and without a warning of an unknown setting, which Kafka's client only logs."""
    topic.send(["a"])
    given = {
        name: "a" if spec.values is None else spec.values[0] if isinstance(spec.values[0], str) else 60_000
        for name, spec in PASSED_ON.items()
    }
    connection = KafkaConnection.model_validate({"brokers": [stack.kafka], "settings": given})
    read = spark.read.format("kafka").options(**{**topic.options, **spark_options(connection)}).load()
    assert [bytes(row.value) for row in read.collect()] == [b"a"]
    known = java(spark).org.apache.kafka.clients.consumer.ConsumerConfig.configNames()
    assert set(PASSED_ON) <= set(known)


def test_a_batch_read_gives_every_part_of_every_record(spark: SparkSession, topic: Topic) -> None:
    topic.send(["a", "b"], partition=0)
    topic.send(["c"], partition=1, timestamp=FIRST + DAY)
    rows = topic.read(spark).orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, bytes(r.value)) for r in rows] == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
    assert {(r.topic, bytes(r.key)) for r in rows} == {(topic.name, b"k")}
    assert [round(r.timestamp.timestamp() * 1000) for r in rows] == [FIRST, FIRST, FIRST + DAY]
    # A header name may occur twice, and a header value may be null.
    assert [[(h.key, h.value) for h in r.headers] for r in rows] == [[("h", b"1"), ("h", None)]] * 3


def test_a_read_may_begin_at_a_time(spark: SparkSession, topic: Topic) -> None:
    for partition in (0, 1):
        topic.send(["old"], partition, FIRST)
        topic.send(["new"], partition, FIRST + DAY)
    starts = json.dumps({topic.name: {"0": FIRST + 1, "1": FIRST + DAY}})
    rows = topic.read(spark, startingOffsetsByTimestamp=starts).collect()
    assert sorted((r.partition, r.offset, bytes(r.value)) for r in rows) == [(0, 1, b"new"), (1, 1, b"new")]


def test_a_stream_goes_on_where_its_checkpoint_ended(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.send(["a", "b"], partition=0)
    topic.send(["c"], partition=1)
    batches = Batches(topic.stream(spark), tmp_path)
    batches.run_through()
    topic.send(["d"], partition=1)
    batches.run_through()
    assert batches.seen == [["a", "b", "c"], ["d"]]


def test_a_batch_takes_no_more_than_its_share(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.send([str(number) for number in range(10)])
    batches = Batches(topic.stream(spark, maxOffsetsPerTrigger="4"), tmp_path)
    batches.run_through()
    assert [len(batch) for batch in batches.seen] == [4, 4, 2]


def test_too_few_records_wait_for_company(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """With an endless delay only the number of records starts a batch; the very first batch starts at once."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    topic.send(["first"])
    batches = Batches(topic.stream(session, minOffsetsPerTrigger="5", maxTriggerDelay="1d"), tmp_path)
    query = batches.start()
    try:
        wait_until(lambda: len(batches.seen) == 1, query)
        topic.send(["a", "b", "c"])
        wait_until(lambda: has_seen(query, topic, 4), query)
        assert batches.seen == [["first"]]
        topic.send(["d", "e"])
        wait_until(lambda: len(batches.seen) == 2, query)
    finally:
        query.stop()
    assert batches.seen == [["first"], ["a", "b", "c", "d", "e"]]


def test_too_few_records_go_when_the_delay_is_over(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    topic.send(["first"])
    batches = Batches(topic.stream(spark, minOffsetsPerTrigger="1000", maxTriggerDelay="500ms"), tmp_path)
    query = batches.start()
    try:
        wait_until(lambda: len(batches.seen) == 1, query)
        topic.send(["a", "b"])
        wait_until(lambda: sum(map(len, batches.seen)) == 3, query)
    finally:
        query.stop()
    assert sorted(value for batch in batches.seen for value in batch) == ["a", "b", "first"]


def test_batches_differ_in_their_time_but_not_in_their_code(
    spark: SparkSession, topic: Topic, stack: Stack, tmp_path: Path
) -> None:
    topic.send(["a", "b", "c"])
    source = CONFIG.source.model_copy(
        update={
            "connection_params": CONFIG.source.connection_params.model_copy(update={"brokers": [stack.kafka]}),
        }
    )
    limits = BatchLimits(start_records=1, start_after_ms=0, max_records=1)
    records = stream_of(spark, source, topic, limits)
    compiled = java(spark).org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    seen: list[tuple[datetime, int]] = []

    def record_time(batch: DataFrame, _batch_id: int) -> None:
        (row,) = batch.select("batch_time").collect()
        seen.append((row.batch_time, compiled.getCount()))

    checkpoint = str(tmp_path / "checkpoint")
    writer = records.writeStream.foreachBatch(record_time).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    times, counts = zip(*seen, strict=True)
    assert len(set(times)) == 3
    assert len(set(counts)) == 1


def test_every_reader_has_a_timestamp_as_the_producer_gave_it(
    spark: SparkSession, stack: Stack, tmp_path: Path
) -> None:
    """Nanoseconds since 1970 are no TIMESTAMP of Spark's. Brokers before 4.0 take them by default."""
    settings = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    topic = Topic(stack, settings)
    times = [FIRST, FIRST * 1000, FIRST * 1_000_000, 2**63 - 1]
    for time_ms in times:
        topic.send(["a"], timestamp=time_ms)
    source = topic.source()
    ranges = {topic.name: {0: (0, len(times))}}
    bounded = read_ranges(spark, source, [topic.name], ranges).orderBy("offset").collect()
    assert [row.timestamp for row in bounded] == times
    # A header's name may occur twice, and its value may be null.
    assert [(header.key, header.value) for header in bounded[0].headers] == [("h", b"1"), ("h", None)]

    seen: list[int] = []
    limits = BatchLimits(start_records=1, start_after_ms=0, max_records=10)
    records = stream_of(spark, source, topic, limits)
    writer = records.writeStream.foreachBatch(
        lambda batch, _: seen.extend(row.timestamp for row in batch.orderBy("offset").collect())
    )
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert seen == times

    options = java(spark).org.apache.spark.sql.util.CaseInsensitiveStringMap(topic.options)
    kafka010 = java(spark).org.apache.spark.sql.kafka010
    tail = kafka010.KafkaTail(options, len(times), INLINE_BYTES)
    try:
        start = json.dumps({topic.name: {"0": 0, "1": 0}})
        tail.goTo(java(spark).org.apache.spark.sql.execution.streaming.runtime.SerializedOffset(start))
        wait_for_tail(tail, len(times))
        rows = tail.take()
        timestamp = kafka010.KafkaRows.Schema().fieldIndex("timestamp")
        # A row is overwritten by the next one.
        assert [rows.next().getLong(timestamp) for _ in times] == times
    finally:
        tail.close()


def wait_for_tail(tail: Any, records: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while tail.size() < records:
        assert time.monotonic() < deadline
        getattr(tail, "await")(100)  # a keyword of Python's


def test_records_that_the_topic_has_lost_stop_the_read(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Neither a stream nor a bounded read skips lost records silently."""
    topic.send(["a", "b", "c"])
    source = topic.source()
    limits = BatchLimits(start_records=1, start_after_ms=0, max_records=10)
    records = stream_of(spark, source, topic, limits)
    stream = Batches(records, tmp_path / "checkpoint")
    stream.run_through()
    topic.send(["d", "e"])
    topic.lose(4)
    with pytest.raises(FAILURES, match=_LOST):
        stream.run_through()
    assert stream.seen == [["a", "b", "c"]]
    ranges = {topic.name: {0: (3, 5)}}
    with pytest.raises(FAILURES, match=_LOST):
        read_ranges(spark, source, [topic.name], ranges).collect()
