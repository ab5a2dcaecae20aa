"""The command `metrics`, and the live view of `status`."""

from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from glassflow_dagster.cli import main
from glassflow_dagster.cli.watch import History, overview, sparkline
from glassflow_dagster.control.heartbeat import DriverState, Heartbeat
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from tests.control.test_pipeline_metrics import beat


def test_the_metrics_of_a_state_folder_are_printed_once(tmp_path: Path) -> None:
    beat(tmp_path)
    found = CliRunner().invoke(main, ["metrics", "--once", "--state", str(tmp_path)])
    assert found.exit_code == 0
    assert 'glassflow_records_total{outcome="written",pipeline="orders"} 6.0\n' in found.stdout
    assert found.stdout.endswith("# EOF\n")


def test_a_definition_whose_ledger_cannot_be_read_is_reported_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("pipeline_id: wrong")
    found = CliRunner().invoke(main, ["metrics", "--once", "--ledger", "--pipelines", str(tmp_path)])
    assert (found.exit_code, found.stdout) == (0, "# EOF\n")
    assert "wrong.yaml" in found.stderr


def test_a_live_view_needs_a_terminal(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["status", "--watch", "--state", str(tmp_path)])
    assert found.exit_code == 2
    assert "--watch needs a terminal; use --json in a script" in found.stderr


def heartbeat(at: float, read: int, ages: int) -> Heartbeat:
    measures = Measures()
    for _ in range(ages):
        measures.event_to_row.observe(0.4)
    return Heartbeat(
        pipeline_id="orders", state=DriverState.RUNNING, pid=1, process_started="", updated_at=at, fingerprint="f",
        totals=Totals(read=read, written=read), measures=measures,
    )  # fmt: skip


def test_rates_and_latency_are_those_of_the_samples() -> None:
    history = History()
    for second, read in enumerate((1000, 1100, 1300, 1300)):
        history.add(heartbeat(second, read, ages=read))
    assert history.rates() == [100, 200, 0]
    read, written, _, _, p50, p95, _, plot = history.cells(None)
    assert (read, written, p50, p95) == ("100", "100", "0.40", "0.49")
    assert plot == "▄█▁"


def test_a_heartbeat_that_is_read_twice_is_one_sample() -> None:
    history = History()
    for _ in range(3):
        history.add(heartbeat(5, 100, 0))
    assert history.rates() == []


def test_a_restarted_driver_measures_anew() -> None:
    history = History()
    for second, (read, ages) in enumerate([(100, 100), (200, 200), (250, 50), (300, 100)]):
        history.add(heartbeat(second, read, ages))
    assert history.rates() == [50]


def test_a_pipeline_of_the_view_has_its_state_and_message(tmp_path: Path) -> None:
    beat(tmp_path, state=DriverState.STALLED, message="records wait")
    console = Console(width=160, record=True, file=None, force_terminal=False)
    history = History()
    with console.capture() as capture:
        console.print(overview({"orders": stream_status(tmp_path, "orders")}, {"orders": history}))
    assert "STALLED" in capture.get()
    assert "records wait" in capture.get()


def test_a_plot_of_nothing_is_flat() -> None:
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
