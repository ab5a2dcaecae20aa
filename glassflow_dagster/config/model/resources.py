"""What GlassFlow's definitions ask of Kubernetes, and what of it has a meaning for Spark.

`replicas` of the transform share the keys of deduplication among themselves: here they are partitions of the state.
`replicas` of a source and of the sink read and write at the same time: here they are cores. The rest (requests, limits,
storage, NATS) describes pods and services that are not there.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from glassflow_dagster.config.model.fields import Part

Replicas = Annotated[int, Field(ge=1)]
_Quantities = dict[str, str | int | float]


class _Stage(Part):
    replicas: Replicas | None = None
    requests: _Quantities | None = None
    limits: _Quantities | None = None


class SourceResources(_Stage):
    """What one source's ingestor gets."""

    source_id: str


class TransformResources(_Stage):
    """What one source's filter, deduplication and expressions get."""

    source_id: str
    storage: _Quantities | None = None


class SinkResources(_Stage):
    """What the sink gets."""


class Resources(Part):
    """A definition's `resources`."""

    nats: dict[str, Any] | None = None
    sources: tuple[SourceResources, ...] = ()
    transform: tuple[TransformResources, ...] = ()
    sink: SinkResources | None = None

    @property
    def state_partitions(self) -> int | None:
        """Into how many partitions the state of deduplication is to be split; None where nothing is said."""
        return max((t.replicas for t in self.transform if t.replicas), default=None)

    @property
    def cores(self) -> int | None:
        """How many tasks are to run at once; None where nothing is said."""
        stages: list[_Stage] = [*self.sources, *([self.sink] if self.sink else [])]
        return max((stage.replicas for stage in stages if stage.replicas), default=None)

    def without_meaning(self) -> Iterator[str]:
        """Name what is asked for and has no meaning here."""
        if self.nats:
            yield "nats"
        for place, stages in (("sources", self.sources), ("transform", self.transform)):
            for index, stage in enumerate(stages):
                yield from (f"{place}[{index}].{name}" for name in _asked(stage))
        yield from (f"sink.{name}" for name in (_asked(self.sink) if self.sink else ()))


def _asked(stage: _Stage) -> list[str]:
    return [name for name in ("requests", "limits", "storage") if getattr(stage, name, None)]
