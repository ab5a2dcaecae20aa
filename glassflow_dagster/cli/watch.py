"""The live view of pipelines in a terminal: rates, lag, latency and a small plot (`status --watch`)."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from glassflow_dagster.control.heartbeat import Heartbeat
from glassflow_dagster.control.status import StreamState, StreamStatus
from glassflow_dagster.runtime.metrics.histogram import Histogram
from glassflow_dagster.runtime.safe_text import printable

_INTERVAL = 1.0  # seconds; a driver's heartbeat is not newer
# Samples: rates and latencies are of the last minute, and the plot shows as many rates as fit beside them.
_SAMPLES = 60
_PLOTTED = 24
_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLORS = {
    StreamState.RUNNING: "green",
    StreamState.STARTING: "yellow",
    StreamState.WAITING: "yellow",
    StreamState.STOPPED: "dim",
}
_COLUMNS = (
    "pipeline", "state", "read/s", "rows/s", "lag", "oldest s", "p50 s", "p95 s", "dead letters", "read/s, last minute",
)  # fmt: skip

ReadStatus = Callable[[], Mapping[str, StreamStatus]]


def watch(read: ReadStatus, console: Console) -> None:
    """Show the pipelines until Ctrl-C; read: returns their status now."""
    histories: dict[str, History] = {}
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            streams = read()
            for name, stream in streams.items():
                history = histories.setdefault(name, History())
                if stream.heartbeat:
                    history.add(stream.heartbeat)
            live.update(overview(streams, histories), refresh=True)
            time.sleep(_INTERVAL)


def overview(streams: Mapping[str, StreamStatus], histories: "Mapping[str, History]") -> Table:
    """Return the table of all pipelines, one row each."""
    table = Table(*_COLUMNS, box=None, header_style="bold")
    for column in table.columns[2:9]:
        column.justify = "right"
    for name, stream in streams.items():
        color = _COLORS.get(stream.state, "red")
        table.add_row(name, f"[{color}]{stream.state.value}[/]", *histories[name].cells(stream.heartbeat))
        if stream.message:
            # A message is text, and no markup.
            table.add_row("", Text(printable(stream.message), style=color))
    return table


@dataclass(frozen=True)
class _Sample:
    at: float
    read: int
    written: int
    ages: Histogram


@dataclass
class History:
    """The last minute of a pipeline."""

    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES + 1))

    def add(self, beat: Heartbeat) -> None:
        """Add a heartbeat, unless it is the one that was added last."""
        sample = _Sample(beat.updated_at, beat.totals.read, beat.totals.written, beat.measures.event_to_row)
        last = self._samples[-1] if self._samples else None
        if last and sample.at == last.at:
            return
        # A new driver measures from zero.
        if last and (sample.ages.count < last.ages.count or sample.read < last.read):
            self._samples.clear()
        self._samples.append(sample)

    def cells(self, beat: Heartbeat | None) -> list[str]:
        """Return the columns after the state; a dash for what is not known. beat: the last heartbeat."""
        waiting = "-" if beat is None or beat.dead_letters_waiting is None else f"{beat.dead_letters_waiting:,}"
        p50, p95 = (self._latency(share) for share in (0.5, 0.95))
        rates = self.rates()
        return [
            f"{self._rate(lambda sample: sample.read):,.0f}",
            f"{self._rate(lambda sample: sample.written):,.0f}",
            "-" if beat is None or beat.lag is None else f"{beat.lag:,}",
            _oldest(beat),
            p50,
            p95,
            waiting,
            sparkline(rates[-_PLOTTED:]),
        ]

    def rates(self) -> list[float]:
        """Return the records read per second between each two samples."""
        samples = list(self._samples)
        return [(b.read - a.read) / (b.at - a.at) for a, b in pairwise(samples) if b.at > a.at]

    def _rate(self, count: Callable[[_Sample], int]) -> float:
        """Return a count's increase per second over the samples."""
        if len(self._samples) < 2:  # noqa: PLR2004 - a rate needs two samples
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        return (count(last) - count(first)) / (last.at - first.at)

    def _latency(self, share: float) -> str:
        """Return a quantile of event-to-row of the last minute's rows; a dash when it had none."""
        value = (self._samples[-1].ages - self._samples[0].ages).quantile(share) if self._samples else None
        return "-" if value is None else f"{value:.2f}"


def sparkline(values: list[float]) -> str:
    """Return a bar of text for each value, the highest of them full."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return _BLOCKS[1] * len(values)
    return "".join(_BLOCKS[max(1, round(value / highest * (len(_BLOCKS) - 1)))] for value in values)


def _oldest(beat: Heartbeat | None) -> str:
    """Return for how many seconds the oldest unread record has waited; a dash where the lag is not known."""
    topics = beat.partition_lags.values() if beat else ()
    seconds = [lag.seconds for partitions in topics for lag in partitions.values()]
    return f"{max(seconds):.0f}" if seconds else "-"
