"""Figures for people: what materializations and observations say of each asset, and of how far the stream is.

Dagster plots every number, so a figure keeps its name in materializations and observations alike.
"""

import hashlib
from typing import Any

import dagster as dg

from glassflow_dagster.driver.heartbeat import Heartbeat
from glassflow_dagster.driver.process import StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.health import Health

Metadata = dict[str, Any]
Offsets = dict[int, int]

# A data version is read by people while it is short; a topic with many partitions gets a digest.
MAX_READABLE_VERSION = 200  # characters


# What a join has made of its events. In the ledger they are sums over all batches, and so they are in the heartbeat.
_JOIN_FIGURES = ("matched", "unmatched", "waiting", "late", "accepted", "null_keys", "joined")


def topic_metadata(health: Health, topic: str) -> Metadata:
    """Describe a raw topic: its partitions and offsets, and how many records wait."""
    found = health.topics[topic]
    if isinstance(found, GlassflowError):
        return {"problem": str(found)}
    figures: Metadata = {
        "partitions": len(found),
        "low_offsets": {str(partition): offsets.low for partition, offsets in sorted(found.items())},
        "high_offsets": {str(partition): offsets.high for partition, offsets in sorted(found.items())},
    }
    committed = committed_offsets(health, topic)
    if committed is None:
        return figures
    lag = sum(max(0, offsets.high - committed.get(partition, offsets.low)) for partition, offsets in found.items())
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


def side_metadata(health: Health, done: str) -> Metadata:
    """Describe the deduplicated stream of one side of a join; the duplicates of both are counted behind them."""
    return {"action": done, **observed_side(health.status)}


def joined_metadata(health: Health, done: str) -> Metadata:
    """Describe the stream of a join, and what became of the events of both sides since the pipeline's first batch."""
    figures = stream_metadata(health, done) | _state_size(health.status.heartbeat)
    if isinstance(health.ledger, GlassflowError):
        return figures
    return figures | {name: getattr(health.ledger.outcomes, name) for name in _JOIN_FIGURES}


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


def observed_topic(heartbeat: Heartbeat, topic: str) -> Metadata:
    """Describe a topic as the driver sees it."""
    return {"lag": heartbeat.lags[topic]} if topic in heartbeat.lags else {}


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


def observed_side(status: StreamStatus) -> Metadata:
    """Describe the deduplicated stream of one side of a join by the heartbeat."""
    return {"state": status.state.value, **({"message": status.message} if status.message else {})}


def observed_joined(status: StreamStatus) -> Metadata:
    """Describe the stream of a join, and what became of its events, by the heartbeat."""
    figures = observed_stream(status)
    if status.heartbeat is None:
        return figures
    totals = status.heartbeat.totals
    return figures | {name: getattr(totals, name) for name in _JOIN_FIGURES} | _state_size(status.heartbeat)


def _state_size(heartbeat: Heartbeat | None) -> Metadata:
    return {} if heartbeat is None or heartbeat.state_bytes is None else {"state_bytes": heartbeat.state_bytes}


def observed_table(heartbeat: Heartbeat) -> Metadata:
    """Describe the table by what the running driver has written into it."""
    totals = heartbeat.totals
    return {
        "written_since_start": totals.written,
        "duplicates_since_start": totals.duplicates,
        "dead_letters_since_start": totals.dead_letters,
    }


def committed_offsets(health: Health, topic: str) -> Offsets | None:
    """Give the next offset of each partition: the driver's word, or the ledger's before a driver's first batch.

    None when neither can be had; empty when nothing was read yet.
    """
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


def data_version(health: Health) -> dg.DataVersion | None:
    """Name the data by the offsets it reaches to, so that a health check that finds nothing new changes nothing.

    None when the offsets of a topic cannot be had.
    """
    texts = []
    for topic in health.topics:
        committed = committed_offsets(health, topic)
        if committed is None:
            return None
        offsets = ",".join(f"{partition}:{offset}" for partition, offset in sorted(committed.items()))
        texts.append(f"{topic}@{offsets}")
    text = " ".join(texts)
    if len(text) > MAX_READABLE_VERSION:
        text = hashlib.sha256(text.encode()).hexdigest()
    return dg.DataVersion(text)
