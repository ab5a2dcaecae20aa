"""The metrics of a state folder, from the heartbeats in it."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, PartitionLag, pipelines_in, write_heartbeat
from glassflow_dagster.control.pipeline_metrics import read_pipeline, read_state_folder
from glassflow_dagster.runtime.metrics.pipeline_metrics import PipelineMetrics
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stores.bookkeeping.outcomes import Totals


def beat(folder: Path, name: str = "orders", **fields: Any) -> None:
    """Write the heartbeat of a driver that runs: this process."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    usual = {
        "pipeline_id": name, "state": DriverState.RUNNING, "pid": os.getpid(),
        "process_started": start_of(os.getpid()), "updated_at": time.time(), "fingerprint": "f", "epoch": 2,
        "totals": Totals(read=10, written=6, duplicates=3, dead_letters=1), "dead_letters_waiting": 1, "state_keys": 6,
        "partition_lags": {"t": {0: PartitionLag(records=4, seconds=2.0)}}, "watermark": time.time() - 60,
    }  # fmt: skip
    write_heartbeat(folder / name, Heartbeat.model_validate({**usual, **fields}))


def of(state: Path, name: str = "orders") -> PipelineMetrics:
    (found,) = read_pipeline(state, name)
    return found


def test_a_running_driver_is_up_and_every_record_has_its_outcome(tmp_path: Path) -> None:
    beat(tmp_path)
    (tmp_path / "orders" / "wanted").touch()
    found = of(tmp_path)
    assert found.driver is not None
    assert (found.driver.up, found.driver.wanted) == (True, True)
    assert 0 <= found.driver.heartbeat_age < 30
    assert found.outcomes == {
        "read": 10, "written": 6, "duplicate": 3, "filtered": 0, "late": 0, "dead_letter": 1, "unmatched": 0, "copy": 0,
    }  # fmt: skip
    assert (found.residual, found.epoch, found.lags) == (0, 2, {"t": {0: (4, 2.0)}})
    assert found.watermark_lag == pytest.approx(60, abs=30)


def test_a_record_without_an_outcome_is_a_residual(tmp_path: Path) -> None:
    beat(tmp_path, totals=Totals(read=10, written=6, duplicates=3))
    assert of(tmp_path).residual == 1


def test_the_sums_of_a_join_are_its_own(tmp_path: Path) -> None:
    sums = {
        "read": 20, "taken": 17, "duplicates": 1, "filtered": 3, "joined_filtered": 1, "accepted": 7, "matched": 6,
        "unmatched": 1, "waiting": 1, "joined": 8, "written": 7,
    }  # fmt: skip
    beat(tmp_path, joins=True, totals=Totals(**sums), lost_waiting=2)
    assert of(tmp_path).residual == 0
    for name in ("read", "taken", "joined"):
        beat(tmp_path, joins=True, totals=Totals(**{**sums, name: sums[name] + 1}), lost_waiting=2)
        assert of(tmp_path).residual > 0, name


@pytest.mark.parametrize("fields", [{"pid": 2**22 - 1}, {"state": DriverState.STOPPED}, {"updated_at": 1.0}])
def test_of_a_driver_that_does_not_run_only_what_stays_true_is_told(tmp_path: Path, fields: dict[str, Any]) -> None:
    beat(tmp_path, **fields)
    found = of(tmp_path)
    assert found.driver is not None
    assert not found.driver.up
    assert not found.lags
    assert (found.watermark_lag, found.state_keys) == (None, None)
    assert (found.dead_letters_waiting, found.outcomes["read"]) == (1, 10)


def test_a_driver_that_has_not_read_the_ledger_yet_tells_no_totals(tmp_path: Path) -> None:
    beat(tmp_path, state=DriverState.STARTING, epoch=None, totals=Totals())
    found = of(tmp_path)
    assert (found.outcomes, found.residual, found.epoch) == ({}, None, None)


def test_a_stalled_driver_is_not_up_and_its_lag_is_told(tmp_path: Path) -> None:
    beat(tmp_path, state=DriverState.STALLED)
    found = of(tmp_path)
    assert found.driver is not None
    assert not found.driver.up
    assert found.lags


def test_all_pipelines_of_a_folder(tmp_path: Path) -> None:
    for name in ("users", "orders"):
        beat(tmp_path, name)
    (tmp_path / "never").mkdir()
    assert (
        [found.pipeline for found in read_state_folder(tmp_path, print)]
        == ["orders", "users"]
        == pipelines_in(tmp_path)
    )
    assert read_pipeline(tmp_path, "never") == []
    assert list(read_state_folder(tmp_path / "missing", print)) == []


def test_an_unreadable_heartbeat_hides_no_other_pipeline(tmp_path: Path) -> None:
    for name in ("orders", "users"):
        beat(tmp_path, name)
    (tmp_path / "orders" / "heartbeat.json").write_text("{")
    problems: list[str] = []
    assert [found.pipeline for found in read_state_folder(tmp_path, problems.append)] == ["users"]
    (problem,) = problems
    assert problem.startswith(f"orders: {tmp_path / 'orders' / 'heartbeat.json'}")
