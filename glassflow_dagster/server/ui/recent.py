"""Lag and latency of the last hour, of the time that this process runs: heartbeats have only the present."""

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from glassflow_dagster.control.heartbeat import Heartbeat, is_fresh
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.server.api.catalog import Catalog

SECONDS = 10.0  # between two samples
_HOUR = 3600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Moment:
    """A sample. time: since 1970. Latencies are those of the rows since the sample before; None without a row."""

    time: float
    lag: int | None
    p50: float | None
    p99: float | None


@dataclass
class Recent:
    """Samples heartbeats in a thread."""

    catalog: Catalog
    _moments: dict[str, deque[Moment]] = field(default_factory=dict)
    _last: dict[str, tuple[str, Histogram]] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to sample."""
        threading.Thread(target=self._run, name="recent", daemon=True).start()

    def of(self, pipeline_id: str) -> list[Moment]:
        """Return the samples of a pipeline, the oldest first."""
        return [*self._moments.get(pipeline_id, ())]

    def sample(self) -> None:
        """Take a sample of each pipeline that runs."""
        ids = [stored.pipeline_id for stored in self.catalog.files.all()]
        for pipeline_id in ids:
            try:
                beat = self.catalog.stream(pipeline_id).heartbeat
            except GlassflowError:
                # Its own page says why it cannot be read.
                continue
            if beat is not None and is_fresh(beat):
                self._add(pipeline_id, beat)
        for gone in self._moments.keys() - {*ids}:
            del self._moments[gone]
            self._last.pop(gone, None)

    def _add(self, pipeline_id: str, beat: Heartbeat) -> None:
        ages = beat.measures.event_to_row
        driver, before = self._last.get(pipeline_id, ("", None))
        # Another driver counts from 0.
        new = ages - before if before is not None and driver == beat.process_started else ages
        self._last[pipeline_id] = (beat.process_started, ages)
        moments = self._moments.setdefault(pipeline_id, deque(maxlen=int(_HOUR / SECONDS)))
        moments.append(Moment(time.time(), beat.lag, new.quantile(0.5), new.quantile(0.99)))

    def _run(self) -> None:
        while True:
            try:
                self.sample()
            except Exception:  # noqa: BLE001
                # The thread must go on: pages without plots are better than none.
                _log.exception("sampling heartbeats failed")
            time.sleep(SECONDS)
