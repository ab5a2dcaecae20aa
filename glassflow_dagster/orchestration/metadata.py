"""The metadata of materializations (functions `*_metadata`) and of observations (functions `observed_*`).

Dagster plots every number over time, so a figure has the same name in materializations and observations.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import dagster as dg

from glassflow_dagster.control.heartbeat import Heartbeat
from glassflow_dagster.control.status import StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.health import Health

Metadata = dict[str, Any]
Offsets = dict[int, int]

# A longer data version, of a topic with many partitions, is replaced by its digest.
MAX_READABLE_VERSION = 200  # characters


# The counts of a join's events, summed over batches, in the ledger's totals and in the heartbeat.
_JOIN_FIGURES = ("matched", "unmatched", "waiting", "late", "accepted", "null_keys", "joined")


def topics_metadata(health: Health, topics: Sequence[str]) -> Metadata:
    """Return the metadata of a source's topics: partitions, offsets and lag (in records).

    Of several topics, `partitions` and `lag` are sums, and the offsets and `lags` are by topic. Where Kafka's offsets
    cannot be read, there is only `problem`; without committed offsets there is no lag.
    """
    if len(topics) == 1:
        return _topic_metadata(health, topics[0])
    each = {topic: _topic_metadata(health, topic) for topic in topics}
    problems = [figures["problem"] for figures in each.values() if "problem" in figures]
    if problems:
        return {"problem": "; ".join(problems)}
    summed: Metadata = {"partitions": sum(figures["partitions"] for figures in each.values())}
    for name in ("low_offsets", "high_offsets", "committed_offsets", "lag"):
        if all(name in figures for figures in each.values()):
            summed[name if name != "lag" else "lags"] = {topic: figures[name] for topic, figures in each.items()}
    if "lags" in summed:
        summed["lag"] = sum(figures["lag"] for figures in each.values())
    return summed


def _topic_metadata(health: Health, topic: str) -> Metadata:
    partitions = health.topics[topic]
    if isinstance(partitions, GlassflowError):
        return {"problem": str(partitions)}
    figures: Metadata = {
        "partitions": len(partitions),
        "low_offsets": {str(partition): offsets.low for partition, offsets in sorted(partitions.items())},
        "high_offsets": {str(partition): offsets.high for partition, offsets in sorted(partitions.items())},
    }
    committed = committed_offsets(health, topic)
    if committed is None:
        return figures
    # A partition without a committed offset was not read: all its records count.
    lag = sum(max(0, offsets.high - committed.get(partition, offsets.low)) for partition, offsets in partitions.items())
    return figures | {
        "committed_offsets": {str(partition): offset for partition, offset in sorted(committed.items())},
        "lag": lag,
    }


def stream_metadata(health: Health, action: str) -> Metadata:
    """Return the metadata of the stream: state, rates, and the ledger's counts since the first batch.

    action: what the run did with the stream. When the ledger could not be read, its error replaces the counts.
    """
    figures = {
        "action": action,
        **observed_stream(health.status),
        "spark_log": dg.MetadataValue.path(health.status.log_shown),
    }
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
        **({"copies": outcomes.copies} if outcomes.copies else {}),
    }


def side_metadata(health: Health, action: str) -> Metadata:
    """Return the metadata of a join's deduplicated input; only the joined stream has counts, of both inputs."""
    return {"action": action, **observed_side(health.status)}


def joined_metadata(health: Health, action: str) -> Metadata:
    """Return the metadata of a join's stream: that of every stream, with the join's counts and state size."""
    figures = stream_metadata(health, action) | _state_size(health.status.heartbeat)
    if isinstance(health.ledger, GlassflowError):
        return figures
    return figures | {name: getattr(health.ledger.outcomes, name) for name in _JOIN_FIGURES}


def table_metadata(health: Health, name: str, index: int) -> Metadata:
    """Return the metadata of a ClickHouse table: row count, engine, and the ledger's counts of written rows.

    name: database.table.
    index: its position among the sink's tables; the counts of the whole pipeline are those of the first one.

    Only the problem when the table is missing or could not be read; the problem instead of the counts when the ledger
    could not be read.
    """
    figures: Metadata = {}
    table, is_own = health.tables[index], index == 0
    if isinstance(table, GlassflowError):
        return {"problem": str(table)}
    if table is None:
        return {"problem": "the table does not exist yet; the stream creates it, or reports why it cannot"}
    figures |= {"dagster/row_count": table.rows, "engine": table.engine}
    if isinstance(health.ledger, GlassflowError):
        return {**figures, "problem": str(health.ledger)}
    figures["written"] = health.ledger.by_table.of(name, own=is_own).written
    if not is_own:
        return figures
    return figures | {"dead_letters": health.ledger.outcomes.dead_letters, "batches": health.ledger.batches}


def observed_topics(heartbeat: Heartbeat, topics: Sequence[str]) -> Metadata:
    """Return the lag of a source's topics from the driver's heartbeat; empty when it is unknown."""
    lags = [heartbeat.lags[topic] for topic in topics if topic in heartbeat.lags]
    return {"lag": sum(lags)} if lags else {}


def observed_stream(status: StreamStatus) -> Metadata:
    """Return the stream's state, and rates, lag and batch from its heartbeat."""
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
    """Return the stream's state for a join's deduplicated input, which has no counts of its own."""
    return {"state": status.state.value, **({"message": status.message} if status.message else {})}


def observed_joined(status: StreamStatus) -> Metadata:
    """Return a join's state, rates, counts and state size from the heartbeat."""
    figures = observed_stream(status)
    if status.heartbeat is None:
        return figures
    totals = status.heartbeat.totals
    return figures | {name: getattr(totals, name) for name in _JOIN_FIGURES} | _state_size(status.heartbeat)


def _state_size(heartbeat: Heartbeat | None) -> Metadata:
    """Return the size of the stream's state in bytes; empty when it is unknown."""
    return {} if heartbeat is None or heartbeat.state_bytes is None else {"state_bytes": heartbeat.state_bytes}


def observed_table(heartbeat: Heartbeat, *, is_one_of_many: bool) -> Metadata:
    """Return the counts since the start of the running driver from its heartbeat, which are those of all tables."""
    totals = heartbeat.totals
    return {
        f"written_{'to_all_tables_' if is_one_of_many else ''}since_start": totals.written,
        "duplicates_since_start": totals.duplicates,
        "dead_letters_since_start": totals.dead_letters,
    }


def committed_offsets(health: Health, topic: str) -> Offsets | None:
    """Return the next offset of each partition: from the heartbeat, or from the ledger before a driver's first batch.

    None when the heartbeat has none and the ledger could not be read (`health.ledger` is the error); empty when nothing
    was read yet.
    """
    heartbeat = health.status.heartbeat
    if heartbeat and topic in heartbeat.offsets:
        return heartbeat.offsets[topic]
    if isinstance(health.ledger, GlassflowError):
        return None
    ranges = [offset_range for offset_range in health.ledger.ranges if offset_range.topic == topic]
    return {
        partition: max(offset_range.until for offset_range in ranges if offset_range.partition == partition)
        for partition in {offset_range.partition for offset_range in ranges}
    }


def data_version(health: Health) -> dg.DataVersion | None:
    """Build the data version from the committed offsets, so that it changes only with new data.

    None when the offsets of a topic are not available.
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
        # Dagster shows the version: many partitions become a hash.
        text = hashlib.sha256(text.encode()).hexdigest()
    return dg.DataVersion(text)
