"""The dashboard: its structure, and its expressions against a real Prometheus that scrapes a real pipeline."""

import json
import time
from collections.abc import Iterator
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.control.pipeline_metrics import read_state_folder
from glassflow_dagster.runtime.metrics.exposition import METRICS
from glassflow_dagster.runtime.metrics.measures import Measures, batch_durations
from glassflow_dagster.runtime.metrics.pipeline_metrics import Driver, PipelineMetrics
from glassflow_dagster.runtime.metrics.server import serve_metrics
from tests.e2e.support import Pipeline, start, stop
from tests.monitoring.alert_rules import DEPLOY
from tests.monitoring.metric_names import metrics_in
from tests.monitoring.prometheus import Prometheus, running_prometheus
from tests.servers.stack import Stack
from tests.support.waiting import wait_until

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "glassflow.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_COLUMNS = 24
# What a pipeline on the processing clock does not have while its server takes every insert.
NOT_OF_A_SIMPLE_PIPELINE = {"glassflow_watermark_lag_seconds", "glassflow_insert_retries_total"}


def expressions(pipelines: str) -> list[str]:
    """Return the expressions of all panels with the variables replaced. pipelines: a regular expression."""
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    # Grafana's window is four scrapes at least.
    return [expr.replace("$pipeline", pipelines).replace("$__rate_interval", "10s") for expr in found]


def without_data(prometheus: Prometheus, pipelines: str) -> set[str]:
    """Return the expressions that have no result, or only results that are not numbers."""
    return {
        expr
        for expr in expressions(pipelines)
        if all(isnan(sample.value) for sample in prometheus.query(expr))
    }  # fmt: skip


def synthetic() -> Iterator[PipelineMetrics]:
    """Yield a pipeline on the event clock whose inserts are repeated; its counts grow with time."""
    seconds = int(time.time()) % 100_000
    measures, batch = Measures(), batch_durations()
    for _ in range(seconds % 1000):
        measures.event_to_row.observe(0.4)
        measures.add_insert("d.t", 0.01, 1000, 64_000)
        measures.add_retry("d.t", 252)
        batch.observe(0.3)
    yield PipelineMetrics(
        pipeline="synthetic", outcomes={"read": seconds, "written": seconds}, residual=0,
        driver=Driver(up=True, wanted=True, heartbeat_age=0.5, disk_free=5, disk_size=10), epoch=3,
        lags={"t": {0: (4, 1.5)}}, dead_letters_waiting=2, state_keys=7, state_bytes=1000, watermark_lag=12.0,
        measures=measures, batch_phases={"total": batch},
    )  # fmt: skip


@pytest.mark.servers
@pytest.mark.long
def test_every_expression_returns_data_of_a_real_pipeline(stack: Stack, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, stack.kafka, stack.clickhouse_port).write()
    pipeline.create_topic()
    sent = 0

    def is_complete() -> bool:
        """Send more events, so that all rates have something to count; return whether all expressions have data."""
        nonlocal sent
        sent += pipeline.send({"id": f"k{sent + index}", "n": index} for index in range(20))
        found = without_data(prometheus, pipeline.name)
        return {name for expr in found for name in metrics_in(expr)} <= NOT_OF_A_SIMPLE_PIPELINE

    with (
        serve_metrics("127.0.0.1", 0, lambda: read_state_folder(pipeline.state, print)) as real,
        serve_metrics("127.0.0.1", 0, synthetic) as other,
        running_prometheus(tmp_path / "prometheus", {"real": real, "synthetic": other}) as prometheus,
    ):
        start(pipeline)
        try:
            wait_until(is_complete, "all has data", evidence=lambda: without_data(prometheus, pipeline.name))
            wait_until(
                lambda: not without_data(prometheus, "synthetic"),
                "all has data", evidence=lambda: without_data(prometheus, "synthetic"),
            )  # fmt: skip
        finally:
            stop(pipeline)


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    used = {name for expr in expressions(".+") for name in metrics_in(expr)}
    assert used == {metric.name for metric in METRICS}


def test_every_panel_has_a_title_a_description_and_the_chosen_data_source() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in PANELS:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert [target["datasource"] for target in panel["targets"]] == [source] * len(panel["targets"])
        assert all('pipeline=~"$pipeline"' in target["expr"] for target in panel["targets"]), panel["title"]
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "pipeline"}


def test_no_panel_covers_another() -> None:
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= _COLUMNS, panel["title"]
    for one, other in combinations(DASHBOARD["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        is_beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        is_below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert is_beside or is_below, (one["title"], other["title"])
