"""How pipelines appear in Dagster and are run by it: everything besides their definitions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import dagster as dg

NodeKind = Literal["topic", "deduplicated", "joined", "table"]


@dataclass(frozen=True)
class Node:
    """An asset of a pipeline, as a translation sees it.

    kind: `topic`, `deduplicated`, `joined` or `table`.
    topic and source_id: of the source, None for a joined stream and a table.
    database and table: the pipeline's target.
    """

    kind: NodeKind
    pipeline_id: str
    topic: str | None
    source_id: str | None
    database: str
    table: str


# Returns the spec that Dagster shows for a node, from the one that it has by default.
Translation = Callable[[dg.AssetSpec, Node], dg.AssetSpec]


@dataclass(frozen=True)
class CheckOptions:
    """Whether an asset check exists, and the severity of its failures; None: as the check decides."""

    enabled: bool = True
    severity: dg.AssetCheckSeverity | None = None


@dataclass(frozen=True)
class OpOptions:
    """The op that starts a pipeline's stream and checks its health.

    pool: limits how many such ops run at once (Dagster's pools); None for a pool of the pipeline's own.
    """

    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None


@dataclass(frozen=True)
class PipelineOptions:
    """How the assets and checks of pipelines appear in Dagster.

    key_prefix: of all asset keys.
    table_key_prefix: makes a table's key this prefix and the table's name, as that of a dbt source is.
    group_name: of all assets; None for a group for each pipeline.
    owners, tags and kinds: in addition to those that the assets have anyway.
    translation: changes the spec of each asset, the last of all.
    checks: by name; those that are not named are as by default.
    """

    key_prefix: tuple[str, ...] = ()
    table_key_prefix: tuple[str, ...] | None = None
    group_name: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    translation: Translation | None = None
    op: OpOptions = field(default_factory=OpOptions)
    checks: Mapping[str, CheckOptions] = field(default_factory=dict)


@dataclass(frozen=True)
class Automation:
    """What the sensors do by themselves.

    every: the schedule of health checks (cron, UTC) of all pipelines; None: as each definition says (`checks.every`).
    health_checks: whether there are any.
    restarts: whether failed streams are restarted.
    running: whether the sensors run from the beginning, or wait until a user switches them on.
    """

    every: str | None = None
    health_checks: bool = True
    restarts: bool = True
    running: bool = True

    @property
    def default_status(self) -> dg.DefaultSensorStatus:
        """The status of a new sensor."""
        return dg.DefaultSensorStatus.RUNNING if self.running else dg.DefaultSensorStatus.STOPPED
