"""A small draw of the kinds of faults, and tests that the harness detects wrong results.

The report's header shows the seed; `GLASSFLOW_FAULT_SEED=n` repeats the draw. `make faults` runs each kind once.
"""

import http.client
import random
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.driver import Driver
from tests.faults.http_proxy import Answer, Exchange, Rule
from tests.faults.kinds import DEDUPLICATION, KINDS, LEDGER, SHARED, TABLE, VARIED, Kind
from tests.faults.repetition import repeat, run_pass
from tests.faults.servers import Servers
from tests.faults.surroundings import ROWS
from tests.faults.world import QUICK_COMPILATION, World
from tests.support.variants import fault_seed

SEED = fault_seed()
OTHERS = (TABLE, SHARED, *VARIED)
OTHER = OTHERS[SEED % len(OTHERS)]

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    found = Servers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("workload", "lasting", "deadly"),
    [(DEDUPLICATION, 1, 1), pytest.param(OTHER, 1, 1, marks=pytest.mark.long)],
    ids=["deduplication", "other"],
)
def test_a_draw_of_faults_changes_no_row(
    workload: str, lasting: int, deadly: int, servers: Servers, tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    usual = [kind for kind in KINDS if workload in kind.workloads and not kind.apart]
    of_both = ([kind for kind in usual if kind.dies == dies] for dies in (False, True))
    drawn = [
        kind for kinds, count in zip(of_both, (lasting, deadly), strict=True) for kind in draw.sample(kinds, count)
    ]
    outcomes = list(run_pass(servers, tmp_path, workload, [(kind, SEED) for kind in drawn]))
    assert [(o.kind, o.wrong) for o in outcomes] == [(kind.name, ()) for kind in drawn]


@pytest.mark.long
def test_a_lost_ledger_row_and_switched_off_tokens_are_seen(servers: Servers, tmp_path: Path) -> None:
    proxy = servers.clickhouse_proxy
    world = World(servers, tmp_path, DedupWorkload)
    try:
        world.warm_up()
        kept = repeat(world, Kind("kept", "", lambda *_: 1), "", SEED)
        assert kept.wrong == ()

        never_sent = Kind("lost", "", lambda world, _: world.apply_rule(Rule(_pretend, LEDGER)), patience=10)
        lost = repeat(world, never_sent, "", SEED)
        assert any(text.startswith("ledger: batch") for text in lost.wrong)
        assert not any(text.startswith("row") for text in lost.wrong)

        proxy.change = _switch_tokens_off
        doubled = repeat(world, Kind("doubled", "", _hide_that_rows_are_in, patience=10), "", SEED)
        assert any(text.startswith("row too many") for text in doubled.wrong)
    finally:
        proxy.change = lambda _: None
        world.end()


@pytest.mark.long
def test_a_fence_that_is_down_is_seen(servers: Servers, tmp_path: Path) -> None:
    """Two drivers run copies of one checkpoint, and the older one's fencing query does not show the newer epoch."""
    world = World(servers, tmp_path, DedupWorkload)
    newer = None
    try:
        world.warm_up()
        assert world.driver.stop() == 0
        copy = tmp_path / "copy"
        shutil.copytree(world.state, copy)
        older = world.driver = world.new_driver()
        world.until(lambda: world.log.read_text().count("is running") == 2, "the older one runs")
        epoch = world.client.query(f"SELECT max(epoch) FROM {world.name}.glassflow_epochs").result_rows[0][0]
        servers.clickhouse_proxy.change = partial(_hide_epochs_after, epoch)
        direct = {"GLASSFLOW_CLICKHOUSE_URL": f"http://default:@127.0.0.1:{servers.clickhouse.port}"}
        log = tmp_path / "newer.log"
        newer = Driver(world.definition, copy, log, {**QUICK_COMPILATION, **direct})
        world.until(lambda: "is running" in log.read_text(), "the newer one runs")
        # Stopped while the older driver writes two batches, it writes one: two equal batches would have equal tokens.
        asleep = newer.all
        newer.signal(signal.SIGSTOP, asleep)
        for batch in ("first", "second"):
            world.begin(f"{SEED} {batch}")
            world.wait_and_compare(dies=True, seconds=30)
        newer.signal(signal.SIGCONT, asleep)
        assert older.code is None
        world.until(lambda: "so far read" in log.read_text(), "the newer one has written, too")
        assert any(text.startswith("row") for text in world.differences())
    finally:
        servers.clickhouse_proxy.change = lambda _: None
        world.end()
        if newer:
            newer.end()


def _hide_that_rows_are_in(world: World, _: random.Random) -> int:
    """Drop the response to the first insert that succeeds.

    A block with a rejected row duplicates nothing. Its response passes: without it the driver repeats the same block.
    """
    statuses: list[int] = []

    def act(exchange: Exchange) -> None:
        answer = exchange.forward()
        statuses.append(answer.status)
        if answer.status == http.client.OK:
            exchange.hang_up()
        else:
            exchange.answer(answer)

    while http.client.OK not in statuses:
        world.apply_rule(Rule(act, ROWS))
    return len(statuses)


def _pretend(exchange: Exchange) -> None:
    """Report success without executing the insert."""
    exchange.answer(Answer(200, {"X-ClickHouse-Summary": "{}"}, b""))


def _hide_epochs_after(number: int, exchange: Exchange) -> None:
    exchange.body = exchange.body.replace(b"ORDER BY epoch DESC", f"AND epoch <= {number} ORDER BY epoch DESC".encode())


def _switch_tokens_off(exchange: Exchange) -> None:
    parts = urlsplit(exchange.path)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    if settings.pop("insert_deduplication_token", None):
        settings.update(insert_deduplicate="0", deduplicate_insert="disable")
        exchange.path = f"{parts.path}?{urlencode(settings)}"
