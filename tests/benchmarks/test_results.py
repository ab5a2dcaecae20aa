import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import latency, state_size
from benchmarks.events import can_stay, distinct, event, key, numbers
from benchmarks.peers.__main__ import PEERS
from benchmarks.peers.peer import Peer, sections
from benchmarks.pipelines import Batch, second_half
from benchmarks.report import PAGES, plot, read_results, render, require_a_block_for_each, table
from benchmarks.results import RESULTS, Runs, percentile, spread, turns
from benchmarks.steady_state import Expected, Sample, rates


def figure(*runs: float) -> dict[str, object]:
    return spread(list(runs))


def result(**cases: dict[str, dict[str, object]]) -> dict[str, object]:
    return {
        "command": "python -m benchmarks.some",
        "finished": "2026-01-01T00:00:00Z",
        "commit": "0123456789",
        "machine": {"cores": 2, "processor": "a processor", "memory_gib": 24.0, "system": "Linux 6"},
        "parameters": {"events": 2_000_000},
        "load": [0.1, 0.4],
        "cases": {case: {"figures": figures, "remarks": {}} for case, figures in cases.items()},
    }


def test_a_spread_has_median_least_and_greatest_of_all_runs() -> None:
    assert spread([3.0, 1.0, 2.0, 10.0]) == {"median": 2.5, "low": 1.0, "high": 10.0, "runs": [3.0, 1.0, 2.0, 10.0]}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.95, 10), (0.96, 20), (0.99, 20), (1, 30)])
def test_a_percentile_is_the_least_value_that_the_share_is_at_most(share: float, expected: int) -> None:
    assert percentile({20: 4, 10: 95, 30: 1}, share) == expected


def test_a_tenth_of_the_events_repeat_an_earlier_one_and_the_others_count_on() -> None:
    drawn = list(numbers(10_000, first=500))
    new = sorted({number for number in drawn if number >= 500})
    assert new == list(range(500, 500 + distinct(10_000, first=500)))
    assert all(later - sooner == 1 for sooner, later in pairwise(new))
    assert len(drawn) == 10_000
    assert 0.09 < 1 - len(new) / len(drawn) < 0.11
    assert drawn == list(numbers(10_000, first=500))


def test_events_have_190_bytes_and_keys_of_their_own() -> None:
    sizes = [len(event(number)) for number in range(0, 10_000_000, 99_991)]
    assert 189 <= sum(sizes) / len(sizes) <= 191
    assert json.loads(event(7))["id"] == key(7) != key(8)


def test_the_second_half_of_the_batches_counts_from_the_end_of_the_one_that_passes_half() -> None:
    done = [Batch(read, 0, ended) for read, ended in ((100, 5000), (100, 6000), (150, 8000), (50, 9000))]
    assert second_half(done) == pytest.approx(200 / 3)


def test_one_batch_has_no_second_half() -> None:
    with pytest.raises(SystemExit, match="send more events"):
        second_half([Batch(100, 0, 5000)])


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.7, 0.99])
def test_the_rate_of_rows_that_come_in_batches_does_not_depend_on_where_sampling_begins(phase: float) -> None:
    # 20 batches of 90,000 rows, one every 2 seconds; a tenth more events than rows are read.
    expected = Expected(2_000_000, 1_800_000, 1_800_000)
    samples = [
        Sample(at=step / 2, rows=min(int(step / 4 + phase), 20) * 90_000, cpu={"consumer": step / 2, "kafka": step / 8})
        for step in range(90)
    ]
    found = rates(samples, expected)
    assert found["events_per_second"] == pytest.approx(50_000, rel=0.02)
    assert found["events_per_cpu_second"] == pytest.approx(50_000, rel=0.02)
    assert found["cpu_seconds_per_million_events_kafka"] == pytest.approx(5, rel=0.02)


def test_too_few_samples_are_no_rate() -> None:
    with pytest.raises(SystemExit, match="send more events"):
        rates([Sample(0, 0, {}), Sample(0.5, 10, {})], Expected(10, 10, 10))


def test_samples_without_a_new_row_are_no_rate() -> None:
    samples = [Sample(at, 6, {"consumer": at}) for at in range(9)]
    with pytest.raises(SystemExit, match="send more events"):
        rates(samples, Expected(10, 10, 10))


def test_parts_of_one_run_are_cases_and_have_one_load() -> None:
    runs = Runs()
    runs.measure_parts(["few", "many"], lambda: [{"rate": 2.0}, {"rate": 1.0}])
    assert runs.figures == {"few": {"rate": [2.0]}, "many": {"rate": [1.0]}}
    assert len(runs.load) == 1


def test_pairs_are_compared_run_by_run() -> None:
    runs = Runs()
    for case, rate in (("base", 100.0), ("changed", 90.0), ("changed", 60.0), ("base", 80.0)):
        runs.measure(case, lambda rate=rate: {"rows_per_second": rate, "lost": 0.0})
    runs.compare("ratio", "changed", "base")
    assert runs.figures["ratio"] == {"ratio_of_rows_per_second": [0.9, 0.75]}


def test_a_peer_that_fails_is_told_and_takes_no_figures_from_the_others() -> None:
    def fail() -> dict[str, float]:
        raise SystemExit("Some has ended by itself; the end of its log:\nmuch")

    runs = Runs()
    runs.attempt("some", fail)
    runs.attempt("other", lambda: {"rows_per_second": 3.0})
    runs.attempt("some", fail)
    assert runs.figures == {"some": {}, "other": {"rows_per_second": [3.0]}}
    said = "Some has ended by itself; the end of its log:"
    assert runs.remarks == {"some": {"failed": f"{said}; {said}"}}
    drawn = plot(result(some={}, other={"rows_per_second": figure(3)}))
    assert drawn.count("<rect") == 1


@pytest.mark.parametrize(
    "events",
    [
        state_size.BATCH * state_size.BATCHES,
        sum(rate * seconds for rate, seconds in latency.plan(list(latency.RATES), 30.0)),
    ],
)
def test_only_the_largest_state_is_filled_once_for_all_runs(events: float) -> None:
    smaller, largest = state_size.KEYS[-2:]
    assert can_stay(largest, events)
    assert not can_stay(smaller, events)


def test_every_other_turn_goes_backwards() -> None:
    assert list(turns(["a", "b"], 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


def test_a_table_has_a_row_a_figure_and_a_column_a_case() -> None:
    cases = result(
        first={"events_per_second": figure(40_000, 50_000, 45_000), "lost": figure(0)},
        second={"events_per_second": figure(1.23456)},
    )["cases"]
    assert list(table(cases)) == [
        "| | first | second |",
        "|---|--:|--:|",
        "| events per second | 45,000 (40,000 to 50,000) | 1.23 |",
        "| lost | 0 |  |",
    ]


def test_a_block_of_the_page_is_made_of_its_results_and_the_rest_stays() -> None:
    end = "<!-- end of results -->\n"
    page = f"before\n<!-- results: some -->\nold\n{end}between\n<!-- results: other -->\n{end}"
    made = render(page, {"some": result(case={"p50_ms": figure(400, 500, 600)})})
    assert made.startswith("before\n<!-- results: some -->\n`python -m benchmarks.some` (events 2,000,000), 3 runs")
    assert "| p50 ms | 500 (400 to 600) |" in made
    assert "old" not in made
    assert made.endswith("between\n<!-- results: other -->\nNot measured yet.\n<!-- end of results -->\n")
    assert render(made, {"some": result(case={"p50_ms": figure(400, 500, 600)})}) == made


def test_a_block_of_a_plot_has_no_table() -> None:
    made = render("<!-- plot: some -->\n<!-- end of results -->\n", {"some": result(case={"p50_ms": figure(4)})})
    assert made.splitlines() == [
        "<!-- plot: some -->",
        "![p50 ms](plots/some.svg)",
        "",
        "`python -m benchmarks.some`, finished 2026-01-01 at commit 0123456789.",
        "<!-- end of results -->",
    ]


def test_a_remark_is_shown_once_on_a_page() -> None:
    remarked = result(case={"p50_ms": figure(4)})
    remarked["cases"] = {"a peer": {"figures": {"p50_ms": figure(4)}, "remarks": {"how": "a set"}}}
    page = "".join(f"<!-- results: {name} -->\n<!-- end of results -->\n" for name in ("some", "other"))
    assert render(page, {"some": remarked, "other": remarked}).count("- **a peer**: *how*: a set.") == 1


@pytest.mark.parametrize("times", [0, 2])
def test_results_with_no_block_or_two_are_refused(times: int) -> None:
    page = "<!-- plot: some -->\n<!-- end of results -->\n<!-- results: some -->\n<!-- end of results -->\n"
    require_a_block_for_each(["some"], [page])
    with pytest.raises(SystemExit, match="must have one `<!-- results: NAME -->` for each of: some"):
        require_a_block_for_each(["some"], [page] * times)


def test_a_plot_has_a_bar_a_case_and_escapes_names() -> None:
    drawn = plot(result(**{"a < b": {"p50_ms": figure(1, 2)}, "c": {"p50_ms": figure(4)}}))
    assert drawn.count("<rect") == 2
    assert "a &lt; b" in drawn


def test_the_pages_show_what_the_results_say() -> None:
    results = read_results(RESULTS)
    pages = {file.name: file.read_text(encoding="utf-8") for file in PAGES.glob("*.md")}
    require_a_block_for_each(results, pages.values())
    assert {name: render(page, results) for name, page in pages.items()} == pages


@pytest.mark.parametrize("peer", PEERS.values(), ids=lambda peer: peer.name)
def test_each_peer_states_its_guarantee_and_the_durability_of_its_state(peer: Peer) -> None:
    file = Path("benchmarks/peers") / f"{peer.module}.py"
    said = sections(file.read_text(encoding="utf-8").split('"""')[1])
    assert {"how", "guarantee", "state", "package", "tuned"} == set(said)
