"""Move the resources of an older definition to their paths in v3."""

from glassflow_dagster.definition.formats.draft import Raw
from glassflow_dagster.definition.formats.older import items_of, part_of, topic_id


def rewrite_resources(raw: Raw, topics: list[tuple[str, Raw]]) -> Raw:
    """Return v3's `resources` with the keys that have a value; a join's are dropped: GlassFlow runs one replica of it.

    An ingestor's resources are under `left`, `right` (of a join's sources) or `base` (of every source without its own).
    """
    old = part_of(raw, "pipeline_resources")
    ingestor = part_of(old, "ingestor")
    sources = []
    for index, (_, topic) in enumerate(topics):
        ingestor_resources = ingestor.get(_side(raw, topic, index)) or ingestor.get("base") or {}
        # One replica is the default.
        replicas = {"replicas": topic["replicas"]} if topic.get("replicas") not in (None, 1) else {}
        if ingestor_resources or replicas:
            sources.append({"source_id": topic_id(topic), **replicas, **ingestor_resources})
    transform = old.get("transform")
    rewritten = {
        "nats": old.get("nats"),
        "sources": sources,
        "transform": [{"source_id": topic_id(topic), **transform} for _, topic in topics] if transform else None,
        "sink": old.get("sink"),
    }
    return {key: value for key, value in rewritten.items() if value}


def _side(raw: Raw, topic: Raw, index: int) -> str:
    """Return "left" or "right": the topic's orientation in the join, else by its position in the list of topics."""
    sides = {source.get("source_id"): source.get("orientation") for source in items_of(part_of(raw, "join"), "sources")}
    return str(sides.get(topic_id(topic)) or ("left", "right")[min(index, 1)])
