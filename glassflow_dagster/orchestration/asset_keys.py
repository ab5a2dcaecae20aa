"""What a pipeline is called in Dagster: its group, its assets, and all that is named after it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source


def identifier(text: str) -> str:
    """Give a name that Dagster takes anywhere: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


@dataclass(frozen=True)
class AssetKeys:
    """A pipeline's names.

    `raw` and `deduplicated` have an entry for each input, a join's left one first; one of `deduplicated` is None where
    that source is not deduplicated. `joined` is None without a join.
    """

    pipeline: str
    raw: tuple[dg.AssetKey, ...]
    deduplicated: tuple[dg.AssetKey | None, ...]
    joined: dg.AssetKey | None
    table: dg.AssetKey

    @property
    def sides(self) -> tuple[dg.AssetKey, ...]:
        """The last asset of each input by itself: its deduplicated stream, or its topic."""
        return tuple(deduplicated or raw for raw, deduplicated in zip(self.raw, self.deduplicated, strict=True))

    @property
    def stream(self) -> dg.AssetKey:
        """The asset that shows how the stream as a whole is; without a node of its own, the table."""
        return self.joined or self.deduplicated[0] or self.table

    @property
    def assets(self) -> list[dg.AssetKey]:
        """The pipeline's assets, in the order the data moves."""
        return [key for key in (*self.raw, *self.deduplicated, self.joined, self.table) if key]


def names(config: PipelineConfig) -> AssetKeys:
    """Name a pipeline's parts: `<pipeline>/raw_<topic>`, `<pipeline>/deduplicated_<topic>`, `<pipeline>/<table>`.

    A joined stream is `<pipeline>/joined_<left source>_<right source>`. The lineage shows the last part of a key alone,
    so it says topic and table by name.
    """
    pipeline = identifier(config.pipeline_id)
    topics = list(_topic_names(config.inputs))
    raw = [f"raw_{topic}" for topic in topics]
    deduplicated = [f"deduplicated_{topic}" for topic in topics]
    joined = "_".join(identifier(part) for part in ("joined", *(source.source_id for source in config.inputs)))
    table = identifier(config.sink.full_table[1])
    if table in (*raw, *deduplicated) or (config.join and table == joined):
        table = f"{table}_table"
    return AssetKeys(
        pipeline=pipeline,
        raw=tuple(dg.AssetKey([pipeline, name]) for name in raw),
        deduplicated=tuple(
            dg.AssetKey([pipeline, name]) if config.dedup_of(source) else None
            for name, source in zip(deduplicated, config.inputs, strict=True)
        ),
        joined=dg.AssetKey([pipeline, joined]) if config.join else None,
        table=dg.AssetKey([pipeline, table]),
    )


def _topic_names(sources: tuple[Source, ...]) -> Iterator[str]:
    """Name topics; one that Dagster could not tell from the topic before it (`a.b`, `a_b`) gets a number."""
    seen: list[str] = []
    for source in sources:
        name = identifier(source.topic)
        yield f"{name}_{len(seen) + 1}" if name in seen else name
        seen.append(name)
