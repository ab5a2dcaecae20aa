"""A draw of the fault matrix on several hosts; `make faults-cluster` runs all of it."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.fault_kinds import CLUSTER, KINDS
from tests.cluster.faults import run_pass
from tests.cluster.hosts import missing
from tests.faults.repetition import Outcome
from tests.faults.results import Results, record
from tests.support.variants import fault_seed

SEED = fault_seed()


@pytest.mark.long
@pytest.mark.servers
def test_a_draw_of_faults_on_several_hosts_changes_no_row() -> None:
    if reason := missing():
        pytest.skip(reason)
    # A driver that starts again takes half a minute longer.
    kind = random.Random(SEED).choice([kind for kind in KINDS if not kind.dies])
    [outcome] = run_pass([(kind, SEED)])
    assert (outcome.kind, outcome.hits > 0, outcome.wrong) == (kind.name, True, ())


def test_the_page_has_a_line_for_each_fault_on_several_hosts(tmp_path: Path) -> None:
    results = Results.read(tmp_path / "none.json")
    results.found[CLUSTER] = {"store: 503": {"abc": {"exact": [0, 1], "wrong": [{"seed": 2, "what": ["a row"]}]}}}
    page = results.page()
    assert "| store: 503 | writes are answered by 503 Slow Down, applied or not | 2 of 3 (abc) |" in page
    assert "- store: 503, cluster, seed 2, code abc: a row" in page
    assert all(f"| {kind.name} | " in page for kind in KINDS)


def test_processes_beside_each_other_lose_no_result(tmp_path: Path) -> None:
    """Each one reads what the others have added meanwhile."""
    file, page = tmp_path / "results.json", tmp_path / "faults.md"
    seeds = range(40)
    with ThreadPoolExecutor(4) as threads:
        for each in [
            threads.submit(record, Outcome("store: 503", CLUSTER, seed, 1, ()), "abc", file, page) for seed in seeds
        ]:
            each.result()
    assert Results.read(file).found[CLUSTER]["store: 503"]["abc"]["exact"] == [*seeds]
    assert "| 40 (abc) |" in page.read_text()
