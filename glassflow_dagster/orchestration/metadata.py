"""Figures for people: what materializations and observations say of each asset, and of how far the stream is.

Dagster plots every number, so a figure keeps its name in materializations and observations alike.
"""

import hashlib
from typing import Any

import dagster as dg

from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.health import Health
from glassflow_dagster.streaming.heartbeat import Heartbeat
from glassflow_dagster.streaming.process import StreamStatus

Metadata = dict[str, Any]
Offsets = dict[int, int]

# A data version is read by people while it is short; a topic with many partitions gets a digest.
MAX_READABLE_VERSION = 200  # characters


def topic_metadata(health: Health, committed: Offsets | None) -> Metadata:
    """Describe the raw topic: its partitions and offsets, and how many records wait."""
    if isinstance(health.topic, GlassflowError):
        return {"problem": str(health.topic)}
    figures: Metadata = {
        "partitions": len(health.topic),
        "low_offsets": {str(partition): found.low for partition, found in sorted(health.topic.items())},
        "high_offsets": {str(partition): found.high for partition, found in sorted(health.topic.items())},
    }
    if committed is None:
        return figures
    lag = sum(max(0, found.high - committed.get(partition, found.low)) for partition, found in health.topic.items())
    return figures | {
        "committed_offsets": {str(partition): offset for partition, offset in sorted(committed.items())},
        "lag": lag,
    }


def stream_metadata(health: Health, done: str) -> Metadata:
    """Describe the stream: its state, its pace, what it has let pass and what not since the pipeline's first batch."""
    figures = {"action": done, **observed_stream(health.status), "spark_log": dg.MetadataValue.path(health.status.log)}
    if isinstance(health.ledger, GlassflowError):
        return {**figures, "problem": str(health.ledger)}
    outcomes = health.ledger.outcomes
    return {
        **figures,
        "read": outcomes.read,
        "duplicates": outcomes.duplicates,
        "filtered": outcomes.filtered,
        "late": outcomes.late,
        "dead_letters": outcomes.dead_letters,
    }


def table_metadata(health: Health) -> Metadata:
    """Describe the ClickHouse table: what it holds, and what the pipeline wrote into it."""
    figures: Metadata = {}
    if isinstance(health.table, GlassflowError):
        return {"problem": str(health.table)}
    if health.table is None:
        return {"problem": "the table does not exist yet; the stream creates it, or says why it does not"}
    figures |= {"dagster/row_count": health.table.rows, "engine": health.table.engine}
    if isinstance(health.ledger, GlassflowError):
        return {**figures, "problem": str(health.ledger)}
    return figures | {
        "written": health.ledger.outcomes.written,
        "dead_letters": health.ledger.outcomes.dead_letters,
        "batches": health.ledger.batches,
    }


def observed_topic(heartbeat: Heartbeat) -> Metadata:
    """Describe the topic as the driver sees it."""
    return {} if heartbeat.lag is None else {"lag": heartbeat.lag}


def observed_stream(status: StreamStatus) -> Metadata:
    """Describe the stream by its heartbeat."""
    figures: Metadata = {"state": status.state.value}
    if status.message:
        figures["message"] = status.message
    heartbeat = status.heartbeat
    if heartbeat is None:
        return figures
    figures |= {
        "pid": heartbeat.pid,
        "input_rows_per_second": heartbeat.input_rows_per_second,
        "processed_rows_per_second": heartbeat.processed_rows_per_second,
    }
    if heartbeat.lag is not None:
        figures["lag"] = heartbeat.lag
    if heartbeat.batch_id is not None:
        figures["batch_id"] = heartbeat.batch_id
    if heartbeat.batch_time is not None:
        figures["batch_time"] = dg.MetadataValue.timestamp(heartbeat.batch_time)
    return figures


def observed_table(heartbeat: Heartbeat) -> Metadata:
    """Describe the table by what the running driver has written into it."""
    totals = heartbeat.totals
    return {
        "written_since_start": totals.written,
        "duplicates_since_start": totals.duplicates,
        "dead_letters_since_start": totals.dead_letters,
    }


def committed_offsets(config: PipelineConfig, health: Health) -> Offsets | None:
    """Give the next offset of each partition: the driver's word, or the ledger's before a driver's first batch.

    None when neither can be had; empty when nothing was read yet.
    """
    topic = config.source.topic
    heartbeat = health.status.heartbeat
    if heartbeat and topic in heartbeat.offsets:
        return heartbeat.offsets[topic]
    if isinstance(health.ledger, GlassflowError):
        return None
    ranges = [found for found in health.ledger.ranges if found.topic == topic]
    return {
        partition: max(r.until for r in ranges if r.partition == partition)
        for partition in {r.partition for r in ranges}
    }


def data_version(config: PipelineConfig, committed: Offsets) -> dg.DataVersion:
    """Name the data by the offsets it reaches to, so that a health check that finds nothing new changes nothing."""
    text = f"{config.source.topic}@" + ",".join(
        f"{partition}:{offset}" for partition, offset in sorted(committed.items())
    )
    if len(text) > MAX_READABLE_VERSION:
        text = hashlib.sha256(text.encode()).hexdigest()
    return dg.DataVersion(text)
