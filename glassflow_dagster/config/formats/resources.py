"""The resources of an older definition at v3's places."""

from glassflow_dagster.config.formats.draft import Raw
from glassflow_dagster.config.formats.older import items_of, part_of, topic_id


def rewrite_resources(raw: Raw, topics: list[tuple[str, Raw]]) -> Raw:
    """Move resources to v3's places; a join's have none there, since GlassFlow runs one replica of it."""
    old = part_of(raw, "pipeline_resources")
    ingestor = part_of(old, "ingestor")
    sources = []
    for index, (_, topic) in enumerate(topics):
        own = ingestor.get(_side(raw, topic, index)) or ingestor.get("base") or {}
        # One replica is what there is without a word.
        replicas = {"replicas": topic["replicas"]} if topic.get("replicas") not in (None, 1) else {}
        if own or replicas:
            sources.append({"source_id": topic_id(topic), **replicas, **own})
    transform = old.get("transform")
    moved = {
        "nats": old.get("nats"),
        "sources": sources,
        "transform": [{"source_id": topic_id(topic), **transform} for _, topic in topics] if transform else None,
        "sink": old.get("sink"),
    }
    return {key: value for key, value in moved.items() if value}


def _side(raw: Raw, topic: Raw, index: int) -> str:
    sides = {s.get("source_id"): s.get("orientation") for s in items_of(part_of(raw, "join"), "sources")}
    return str(sides.get(topic_id(topic)) or ("left", "right")[min(index, 1)])
