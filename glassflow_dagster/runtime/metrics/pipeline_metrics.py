"""The figures of one pipeline, wherever they were read: from its driver's heartbeat, or from the bookkeeping tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.metrics.measures import Measures

# The outcomes of a record, as the label `outcome` names them, and the field of the ledger's totals of each.
OUTCOMES = {
    "read": "read",
    "written": "written",
    "duplicate": "duplicates",
    "filtered": "filtered",
    "late": "late",
    "dead_letter": "dead_letters",
    "unmatched": "unmatched",
    "copy": "copies",
}


@dataclass(frozen=True)
class Driver:
    """What only the host of a driver knows of it.

    wanted: it is meant to run.
    heartbeat_age: in seconds.
    disk_free, disk_size: bytes of the file system that has the state.
    """

    up: bool
    wanted: bool
    heartbeat_age: float
    disk_free: int
    disk_size: int


@dataclass(frozen=True)
class PipelineMetrics:
    """The figures of one pipeline; what is None or empty is not known and has no sample.

    outcomes: numbers of records by the keys of `OUTCOMES`.
    residual: as `outcomes.residual`.
    lags: by topic and partition, as pairs of (unread records, seconds).
    epoch: the number of its newest driver.
    watermark_lag: seconds.
    """

    pipeline: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    residual: int | None = None
    driver: Driver | None = None
    epoch: int | None = None
    lags: Mapping[str, Mapping[int, tuple[int, float]]] = field(default_factory=dict)
    dead_letters_waiting: int | None = None
    state_keys: int | None = None
    state_bytes: int | None = None
    watermark_lag: float | None = None
    measures: Measures | None = None
    batch_phases: Mapping[str, Histogram] = field(default_factory=dict)
