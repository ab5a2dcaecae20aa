"""Measures the phases of batches: how long Spark plans one, runs it, and writes its logs."""

import re
from dataclasses import dataclass, field

from glassflow_dagster.driver.query.running_query import BatchDuration
from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.metrics.measures import batch_durations

# Spark's name of the whole batch.
_WHOLE = "triggerExecution"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass
class BatchPhases:
    """Histograms of seconds by phase: `total`, and Spark's phases in snake case (`add_batch`, `wal_commit`, ...).

    A batch is measured when the driver looks, once a second: of several within a second it is the last one.
    """

    histograms: dict[str, Histogram] = field(default_factory=dict)
    _batch_id: int | None = None

    def observe(self, batch: BatchDuration) -> None:
        """Count a batch; one that is reported again is ignored."""
        if batch.batch_id == self._batch_id:
            return
        self._batch_id = batch.batch_id
        for name, seconds in batch.phases.items():
            phase = "total" if name == _WHOLE else _WORD.sub("_", name).lower()
            self.histograms.setdefault(phase, batch_durations()).observe(seconds)
