"""The Kubernetes resources of GlassFlow's definitions, and their effect on Spark.

`replicas` of the transform, which share the deduplication keys, become partitions of the state store. `replicas` of a
source and of the sink, which read and write in parallel, become cores. The rest (requests, limits, storage, NATS)
describes pods and services that do not exist here, and has no effect.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from glassflow_dagster.definition.model.fields import Part

Replicas = Annotated[int, Field(ge=1)]
_Quantities = dict[str, str | int | float]


class _Stage(Part):
    replicas: Replicas | None = None
    requests: _Quantities | None = None
    limits: _Quantities | None = None


class SourceResources(_Stage):
    """Resources of one source's ingestor."""

    source_id: str


class TransformResources(_Stage):
    """Resources of one source's filter, deduplication and expressions."""

    source_id: str
    storage: _Quantities | None = None


class SinkResources(_Stage):
    """Resources of the sink."""


class Resources(Part):
    """A definition's `resources`."""

    nats: dict[str, Any] | None = None
    sources: tuple[SourceResources, ...] = ()
    transform: tuple[TransformResources, ...] = ()
    sink: SinkResources | None = None

    @property
    def state_partitions(self) -> int | None:
        """The number of partitions of the deduplication state: the most replicas of a transform; None when not set."""
        return max((t.replicas for t in self.transform if t.replicas), default=None)

    @property
    def cores(self) -> int | None:
        """The number of tasks that run at once: the most replicas of a source or the sink; None when not set."""
        stages: list[_Stage] = [*self.sources, *([self.sink] if self.sink else [])]
        return max((stage.replicas for stage in stages if stage.replicas), default=None)

    def ignored_keys(self) -> Iterator[str]:
        """Yield the paths of the settings that have no effect here."""
        if self.nats:
            yield "nats"
        for key, stages in (("sources", self.sources), ("transform", self.transform)):
            for index, stage in enumerate(stages):
                yield from (f"{key}[{index}].{name}" for name in _ignored_keys_of(stage))
        yield from (f"sink.{name}" for name in (_ignored_keys_of(self.sink) if self.sink else ()))


def _ignored_keys_of(stage: _Stage) -> list[str]:
    return [name for name in ("requests", "limits", "storage") if getattr(stage, name, None)]
