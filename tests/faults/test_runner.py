"""What the commands of faults choose and run, without servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.faults import MATRIX as CLUSTER
from tests.faults.__main__ import MATRIX as ONE_HOST
from tests.faults.kinds import DEDUPLICATION, JOIN
from tests.faults.repetition import Outcome
from tests.faults.runner import Matrix, Repetitions
from tests.replicas.faults import MATRIX as REPLICAS

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "evidence" / "faults.md").read_text().split())
MATRICES = {"one host": ONE_HOST, "cluster": CLUSTER, "replicas": REPLICAS}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_one_repetition_of_each_kind_on_each_workload_is_the_default(matrix: Matrix) -> None:
    chosen = matrix.parse("faults", "", [])
    passes = list(matrix.passes(chosen.kinds, chosen.workloads, chosen.seed))
    ran = [(workload, kind.name) for workload, repetitions in passes for kind, _ in repetitions]
    assert len(ran) == len(set(ran))
    assert {kind for _, kind in ran} == {kind.name for kind in matrix.kinds}
    assert {workload for workload, _ in ran} == set(matrix.workloads)
    for _, repetitions in passes:
        assert len({kind.apart for kind, _ in repetitions}) == 1
        assert len(repetitions) == 1 or not any(kind.ends for kind, _ in repetitions)


def test_kind_workload_and_seed_choose_one_repetition() -> None:
    chosen = ONE_HOST.parse("faults", "", ["--kind", "all killed", "--workload", JOIN, "--seed", "7"])
    [(workload, [(kind, seed)])] = ONE_HOST.passes(chosen.kinds, chosen.workloads, chosen.seed)
    assert (workload, kind.name, seed) == (JOIN, "all killed", 7)


def test_an_unknown_kind_is_wrong_usage_that_lists_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ONE_HOST.parse("faults", "", ["--kind", "answer cuts"])
    assert "no such kind: answer cuts; there are: no fault, " in capsys.readouterr().err


def test_repetitions_behind_a_wrong_one_run_on_another_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--workload",
        DEDUPLICATION,
        *(w for name in ("no fault", "answer cut", "status 500") for w in ("--kind", name)),
    ]
    passes: list[list[str]] = []

    def run_pass(workload: str, repetitions: Repetitions) -> Iterator[Outcome]:
        passes.append([kind.name for kind, _ in repetitions])
        for kind, seed in repetitions:
            wrong = ("row missing: 1",) if kind.name == "answer cut" else ()
            yield Outcome(kind.name, workload, seed, 1, wrong)
            if wrong:
                return

    assert ONE_HOST.run(run_pass, ONE_HOST.parse("faults", "", words)) == 1
    assert passes == [["no fault", "answer cut", "status 500"], ["status 500"]]
    assert "answer cut, seed 0: 1 hits WRONG\n     row missing: 1\n" in (said := capsys.readouterr().out)
    assert said.endswith("3 repetitions, 1 wrong\n")


def test_the_page_names_each_kind_of_fault() -> None:
    assert [kind.name for matrix in MATRICES.values() for kind in matrix.kinds if f"`{kind.name}`" not in PAGE] == []
