"""The Dagster names of a pipeline: its group and the keys of its assets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source


def identifier(text: str) -> str:
    """Replace the characters that Dagster does not allow in names: all but letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


@dataclass(frozen=True)
class AssetKeys:
    """The asset keys of a pipeline; `pipeline` is its Dagster name, which is the group and the keys' first part.

    `raw` and `deduplicated` have an entry for each input, a join's left one first; an entry of `deduplicated` is None
    when its source is not deduplicated. `joined` is None without a join.
    """

    pipeline: str
    raw: tuple[dg.AssetKey, ...]
    deduplicated: tuple[dg.AssetKey | None, ...]
    joined: dg.AssetKey | None
    table: dg.AssetKey

    @property
    def sides(self) -> tuple[dg.AssetKey, ...]:
        """The last asset of each input before a join: its deduplicated stream, or else its topic."""
        return tuple(deduplicated or raw for raw, deduplicated in zip(self.raw, self.deduplicated, strict=True))

    @property
    def stream(self) -> dg.AssetKey:
        """The asset that shows the state of the stream: joined, else deduplicated; the table when there is neither."""
        return self.joined or self.deduplicated[0] or self.table

    @property
    def assets(self) -> list[dg.AssetKey]:
        """All assets of the pipeline, in the order of the data flow."""
        return [key for key in (*self.raw, *self.deduplicated, self.joined, self.table) if key]


def build_asset_keys(config: PipelineConfig) -> AssetKeys:
    """Build a pipeline's asset keys: `<pipeline>/raw_<topic>`, `<pipeline>/deduplicated_<topic>`, `<pipeline>/<table>`.

    A joined stream is `<pipeline>/joined_<left source>_<right source>`. Dagster's lineage shows only the last part of a
    key, so that part names the topic or table. A table with the name of another asset gets the suffix `_table`.
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
    """Yield the inputs' topics as identifiers; equal ones (of topics `a.b` and `a_b`) get a number."""
    names: list[str] = []
    for source in sources:
        name = identifier(source.topic)
        yield f"{name}_{len(names) + 1}" if name in names else name
        names.append(name)
