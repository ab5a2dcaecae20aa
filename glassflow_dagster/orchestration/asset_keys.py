"""The Dagster names of a pipeline: its group and the keys of its assets."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import dagster as dg

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source


def identifier(text: str) -> str:
    """Replace the characters that Dagster does not allow in names: all but letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


@dataclass(frozen=True)
class AssetKeys:
    """The asset keys of a pipeline.

    group: its group.
    name: a name that no other pipeline of the code location has, of which those of its op and pool are made.
    `raw` and `deduplicated` have an entry for each input, a join's left one first; an entry of `deduplicated` is None
    when its source is not deduplicated. `joined` is None without a join. `table` is the sink's own table; `routes` has
    those of its routes.
    """

    group: str
    name: str
    raw: tuple[dg.AssetKey, ...]
    deduplicated: tuple[dg.AssetKey | None, ...]
    joined: dg.AssetKey | None
    table: dg.AssetKey
    routes: tuple[dg.AssetKey, ...] = ()

    @property
    def tables(self) -> tuple[dg.AssetKey, ...]:
        """The sink's tables, in the order of `Sink.by_table`."""
        return (self.table, *self.routes)

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
        return [key for key in (*self.raw, *self.deduplicated, self.joined, *self.tables) if key]

    def renamed(self, new_keys: Mapping[dg.AssetKey, dg.AssetKey]) -> "AssetKeys":
        """Return the keys with those that a translation has changed. new_keys: old key -> new key, of all assets."""
        return replace(
            self,
            raw=tuple(new_keys[key] for key in self.raw),
            deduplicated=tuple(key and new_keys[key] for key in self.deduplicated),
            joined=self.joined and new_keys[self.joined],
            table=new_keys[self.table],
            routes=tuple(new_keys[key] for key in self.routes),
        )


def build_asset_keys(
    config: PipelineConfig, prefix: tuple[str, ...] = (), table_prefix: tuple[str, ...] | None = None
) -> AssetKeys:
    """Build a pipeline's asset keys: `<pipeline>/raw_<topic>`, `<pipeline>/deduplicated_<topic>`, `<pipeline>/<table>`.

    A source with several topics has its source_id in place of a topic. A joined stream is `<pipeline>/joined_<left
    source>_<right source>`. Dagster's lineage shows only the last part of a key, so that part names the topic or table.
    A table with the name of another asset gets the suffix `_table`; of several tables with equal names, in different
    databases, all but the first one get their number.
    prefix: of all keys.
    table_prefix: takes the place of the prefix and the pipeline in the table's key.
    """
    pipeline = identifier(config.pipeline_id)
    topics = list(_topic_names(config.inputs))
    raw = [f"raw_{topic}" for topic in topics]
    deduplicated = [f"deduplicated_{topic}" for topic in topics]
    joined = "_".join(identifier(part) for part in ("joined", *(source.source_id for source in config.inputs)))
    others = (*raw, *deduplicated, joined) if config.join else (*raw, *deduplicated)
    tables = _table_names(config, taken=others if table_prefix is None else ())
    folder = (*prefix, pipeline)
    table_folder = folder if table_prefix is None else table_prefix
    own_table, *routes = (dg.AssetKey([*table_folder, table]) for table in tables)
    return AssetKeys(
        group=pipeline,
        name="__".join(identifier(part) for part in folder),
        raw=tuple(dg.AssetKey([*folder, name]) for name in raw),
        deduplicated=tuple(
            dg.AssetKey([*folder, name]) if config.dedup_of(source) else None
            for name, source in zip(deduplicated, config.inputs, strict=True)
        ),
        joined=dg.AssetKey([*folder, joined]) if config.join else None,
        table=own_table,
        routes=tuple(routes),
    )


def _table_names(config: PipelineConfig, taken: Collection[str]) -> list[str]:
    """Return the sink's tables as identifiers, in their order. taken: the names of other assets."""
    names: list[str] = []
    for sink in config.sink.by_table:
        name = identifier(sink.full_table[1])
        name = f"{name}_table" if name in taken else name
        numbered = (f"{name}_{number}" for number in count(len(names) + 1))
        names.append(name if name not in names else next(free for free in numbered if free not in names))
    return names


def _topic_names(sources: tuple[Source, ...]) -> Iterator[str]:
    """Yield the inputs' topics, or else source_ids, as identifiers; equal ones (of `a.b` and `a_b`) get a number."""
    names: list[str] = []
    for source in sources:
        # Several topics have the name of their source.
        name = identifier(source.topic or source.source_id)
        yield f"{name}_{len(names) + 1}" if name in names else name
        names.append(name)
