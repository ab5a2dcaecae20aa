"""The text that Prometheus reads, and how it is served."""

import socket
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as parse_older

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.metrics.exposition import METRICS, openmetrics_text
from glassflow_dagster.runtime.metrics.measures import Measures, batch_durations
from glassflow_dagster.runtime.metrics.pipeline_metrics import Driver, PipelineMetrics
from glassflow_dagster.runtime.metrics.server import serve_metrics


def pipeline(name: str = "orders") -> PipelineMetrics:
    """Return a pipeline of which everything is known."""
    measures, batch = Measures(), batch_durations()
    measures.event_to_row.observe(0.4)
    measures.add_insert("d.t", 0.01, 1000, 64_000)
    measures.add_retry("d.t", 252)
    batch.observe(0.3)
    return PipelineMetrics(
        pipeline=name, outcomes={"read": 10, "written": 7, "duplicate": 3}, residual=0,
        driver=Driver(up=True, wanted=True, heartbeat_age=0.5, disk_free=5, disk_size=10), epoch=3,
        lags={"t": {0: (4, 1.5), 1: (0, 0.0)}}, dead_letters_waiting=2, state_keys=7, state_bytes=1000,
        watermark_lag=12.0, measures=measures, batch_phases={"total": batch},
    )  # fmt: skip


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the value of each sample by its name and labels, as text."""
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_has_a_sample_of_a_pipeline_of_which_everything_is_known() -> None:
    families = {family.name for family in text_string_to_metric_families(openmetrics_text(lambda: [pipeline()]))}
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}


def test_values_and_labels() -> None:
    found = samples(openmetrics_text(lambda: [pipeline(), replace(pipeline("users"), residual=-2)]))
    assert found["glassflow_records_total", "outcome=duplicate,pipeline=orders"] == 3
    assert found["glassflow_ledger_residual", "pipeline=users"] == -2
    assert found["glassflow_consumer_lag_records", "partition=0,pipeline=orders,topic=t"] == 4
    assert found["glassflow_consumer_lag_seconds", "partition=0,pipeline=orders,topic=t"] == 1.5
    assert found["glassflow_insert_retries_total", "code=252,pipeline=orders,table=d.t"] == 1
    assert found["glassflow_restarts_total", "pipeline=orders"] == 2
    assert found["glassflow_event_to_row_seconds_bucket", "le=0.3,pipeline=orders"] == 0
    assert found["glassflow_event_to_row_seconds_bucket", "le=0.5,pipeline=orders"] == 1
    assert found["glassflow_event_to_row_seconds_bucket", "le=+Inf,pipeline=orders"] == 1
    assert found["glassflow_event_to_row_seconds_sum", "pipeline=orders"] == 0.4


def test_what_is_not_known_has_no_sample() -> None:
    names = {name for name, _ in samples(openmetrics_text(lambda: [PipelineMetrics("p", {"read": 1}, 0)]))}
    assert names == {"glassflow_records_total", "glassflow_ledger_residual"}


def test_no_pipeline_is_no_error() -> None:
    assert openmetrics_text(list) == "# EOF\n"


def test_whoever_asks_gets_the_format_that_it_accepts() -> None:
    with serve_metrics("127.0.0.1", 0, lambda: [pipeline()]) as port:
        address = f"http://127.0.0.1:{port}/metrics"
        wanted = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urllib.request.urlopen(wanted) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            newer = answer.read().decode()
        with urllib.request.urlopen(address) as answer:
            older = answer.read().decode()
    assert samples(newer)["glassflow_up", "pipeline=orders"] == 1
    assert "glassflow_up" in {family.name for family in parse_older(older)}


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        problem = rf"cannot listen on 127.0.0.1:{port} \(Address already in use\)"
        with pytest.raises(GlassflowError, match=problem), serve_metrics("127.0.0.1", port, list):
            pass
