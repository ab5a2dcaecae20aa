"""Plots, and the samples of heartbeats that two of them show."""

import re
import time
from pathlib import Path

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.server.ui.plots import HEIGHT, WIDTH, Line, Plot
from glassflow_dagster.server.ui.recent import Recent
from tests.server.api.conftest import Api, deduplicating

NOW = 1_700_000_000.0


def plot(*points: tuple[float, float]) -> Plot:
    return Plot("Rate", [Line("in", 1, [*points])], 60, lambda value: f"{value:g}")


def test_a_line_is_within_the_plot_and_interrupted_where_points_are_missing() -> None:
    points = [(NOW - 60 * minute, float(minute)) for minute in range(60, -1, -1) if not 20 < minute < 40]
    svg = plot(*points).svg(NOW)
    [path] = re.findall(r' d="([^"]+)"', svg)
    assert path.count("M") == 2
    numbers = [tuple(map(float, each.split())) for each in re.split("[ML]", path)[1:]]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in numbers)


def test_points_older_than_an_hour_are_left_out() -> None:
    assert " d=" not in plot((NOW - 4000, 1.0)).svg(NOW)


def test_a_single_point_is_a_dot_and_none_is_an_empty_plot() -> None:
    assert "<circle" in plot((NOW - 10, 1.0)).svg(NOW)
    assert plot().is_empty
    assert "no value in the last hour" in plot().svg(NOW)


def test_a_plot_says_in_words_what_it_shows() -> None:
    assert 'aria-label="Rate: in 2, at most 5"' in plot((NOW - 20, 5.0), (NOW - 10, 2.0)).svg(NOW)


def beat(folder: Path, ages: list[float], *, lag: int, started: str = "1") -> None:
    heartbeat = Heartbeat(
        pipeline_id="orders-clean", state=DriverState.RUNNING, pid=1, process_started=started, updated_at=time.time(),
        fingerprint="f", lag=lag,
    )  # fmt: skip
    for age in ages:
        heartbeat.measures.event_to_row.observe(age)
    folder.mkdir(parents=True, exist_ok=True)
    write_heartbeat(folder, heartbeat)


def test_latencies_are_those_since_the_sample_before(site: Api) -> None:
    site.write(deduplicating())
    recent, folder = Recent(site.services.catalog), site.state / "orders-clean"
    beat(folder, [0.1] * 100, lag=7)
    recent.sample()
    beat(folder, [0.1] * 100 + [20.0] * 10, lag=0)
    recent.sample()
    beat(folder, [0.1] * 3, lag=0, started="2")
    recent.sample()
    first, second, third = recent.of("orders-clean")
    assert (first.lag, second.lag) == (7, 0)
    assert first.p99 is not None
    assert first.p99 <= 0.1
    assert second.p50 is not None
    assert second.p50 > 5
    assert third.p99 is not None
    assert third.p99 <= 0.1


def test_a_deleted_pipeline_is_forgotten(site: Api) -> None:
    file = site.write(deduplicating())
    recent = Recent(site.services.catalog)
    beat(site.state / "orders-clean", [], lag=1)
    recent.sample()
    assert recent.of("orders-clean")
    file.unlink()
    recent.sample()
    assert recent.of("orders-clean") == []
