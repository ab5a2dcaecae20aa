"""What a pipeline is called in Dagster: its group, its assets, and all that is named after it."""

import re
from dataclasses import dataclass

import dagster as dg

from glassflow_dagster.config.model import PipelineConfig


def identifier(text: str) -> str:
    """Give a name that Dagster takes anywhere: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


@dataclass(frozen=True)
class Names:
    """A pipeline's names. `deduplicated` is None for a pipeline without deduplication."""

    pipeline: str
    raw: dg.AssetKey
    deduplicated: dg.AssetKey | None
    table: dg.AssetKey

    @property
    def assets(self) -> list[dg.AssetKey]:
        """The pipeline's assets, in the order the data moves."""
        return [key for key in (self.raw, self.deduplicated, self.table) if key]


def names(config: PipelineConfig) -> Names:
    """Name a pipeline's parts: `<pipeline>/raw_<topic>`, `<pipeline>/deduplicated_<topic>`, `<pipeline>/<table>`.

    The lineage shows the last part of a key alone, so it says topic and table by name.
    """
    pipeline = identifier(config.pipeline_id)
    topic = identifier(config.source.topic)
    raw, deduplicated = f"raw_{topic}", f"deduplicated_{topic}"
    table = identifier(config.sink.full_table[1])
    if table in (raw, deduplicated):
        table = f"{table}_table"
    return Names(
        pipeline=pipeline,
        raw=dg.AssetKey([pipeline, raw]),
        deduplicated=dg.AssetKey([pipeline, deduplicated]) if config.dedup else None,
        table=dg.AssetKey([pipeline, table]),
    )
