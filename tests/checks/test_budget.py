"""The load of checks on the server: limits that end a query, sampling of keys, and incremental sums."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.checks import budget, counts, duplicates, wait_until_stable
from glassflow_dagster.checks.budget import Share, choose_share, explaining_limits, max_rows_at_once, set_limits
from glassflow_dagster.checks.counts import compare_counts
from glassflow_dagster.checks.duplicates import find_residual_duplicates
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.checks.waiting_dead_letters import examine_dead_letters
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.bookkeeping.ledger import LedgerSums, add_later_batches
from glassflow_dagster.stores.bookkeeping.totals import complete_totals, read_sums, read_totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import LimitReached
from glassflow_dagster.stores.clickhouse.queries import fetch
from tests.local.conftest import Server

NewPipeline = Callable[..., Any]
MIB = 1024 * 1024


def with_checks(config: PipelineConfig, **checks: Any) -> PipelineConfig:
    return config.model_copy(update={"checks": Checks(**checks)})


def test_a_table_within_the_limit_is_looked_at_as_a_whole_and_of_a_larger_one_a_share() -> None:
    checks = Checks(max_memory_mib=2048)
    assert choose_share(0, checks) == choose_share(max_rows_at_once(checks), checks) == Share()
    drawn = {choose_share(max_rows_at_once(checks) * 3, checks) for _ in range(100)}
    assert drawn == {Share(3, 0), Share(3, 1), Share(3, 2)}
    assert max_rows_at_once(Checks(max_memory_mib=4096)) == pytest.approx(2 * max_rows_at_once(checks), abs=1)


@pytest.mark.servers
def test_all_shares_together_find_what_a_whole_look_finds_and_each_says_what_it_looked_at(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    keys = [f"k{number}" for number in range(60)]
    pipeline.batch(*keys)
    pipeline.execute("INSERT INTO {table} SELECT * FROM {table} WHERE id < 'k3'")
    whole = find_residual_duplicates(pipeline.config, print)
    assert whole.figures["keys_checked"] == "all"
    assert "Searched only" not in whole.description

    monkeypatch.setattr(budget, "BYTES_A_ROW", 2048 * MIB // 30)
    shares = []
    for part in range(3):
        monkeypatch.setattr(secrets, "randbelow", lambda parts, part=part: part % parts)
        shares.append(find_residual_duplicates(pipeline.config, print))
    for name in ("rows", "unique_keys", "duplicate_rows", "duplicate_keys"):
        assert sum(found.figures[name] for found in shares) == whole.figures[name]
    for found in shares:
        assert not found.passed
        assert found.figures["keys_checked"] == "1 in 3"
        assert "Searched only: the rows of the last 1d, and of these 1 in 3 of the keys" in found.description


@pytest.mark.servers
def test_a_share_in_which_nothing_is_wrong_says_that_it_is_one(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "BYTES_A_ROW", 2048 * MIB // 10)
    timed, untimed = new_pipeline(), new_pipeline(extra=None)
    for pipeline in (timed, untimed):
        pipeline.batch(*(f"k{number}" for number in range(40)))
        found = verify_pipeline(pipeline.config, print)
        assert found.passed
        assert found.duplicates.passed
        assert "1 in 4 of the keys" in found.duplicates.description
        assert "Keys not counted: checks.max_memory_mib is enough for 10 rows." in found.counts.description
        assert found.counts.figures["rows"] == 40


@pytest.mark.servers
def test_what_a_limit_has_ended_is_neither_right_nor_wrong_and_the_exit_code_is_not_that_of_a_proof(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a")

    def many_keys(client: Client, *_: str) -> tuple[int, int]:
        """Use more memory than these few keys do."""
        return fetch(client, "SELECT count(), uniqExact(number) FROM numbers(5000000)")[0]  # type: ignore[return-value]

    monkeypatch.setattr(counts, "count_keys", many_keys)
    monkeypatch.setattr(duplicates, "count_keys", many_keys)
    found = verify_pipeline(with_checks(pipeline.config, max_memory_mib=64), print)
    assert not found.passed
    assert (found.duplicates.passed, found.duplicates.severity, found.duplicates.limit_reached) == (False, "warn", True)
    assert found.duplicates.description.startswith("Not checked: ClickHouse ended a query at a limit (")
    assert "raise checks.max_memory_mib (64)" in found.duplicates.description
    assert any(line.startswith("UNKNOWN no_residual_duplicates: Not checked") for line in found.lines())
    # The counts need no keys: they are decided, and say what they leave out.
    assert found.counts.passed
    assert "Keys not counted: ClickHouse ended a query at a limit (" in found.counts.description


@pytest.mark.servers
def test_a_query_that_takes_too_long_is_told_with_the_remedy(new_pipeline: NewPipeline) -> None:
    checks = Checks(max_query_time="1s")
    client = connect(new_pipeline().config.sink.connection_params)
    set_limits(client, checks)
    told = pytest.raises(LimitReached, match=r"code 159.*raise checks\.max_query_time \(1s\)")
    with told, explaining_limits(checks):
        fetch(client, "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")


USERS = """<clickhouse><profiles><default/>
<small><max_memory_usage>5000000</max_memory_usage><group_by_overflow_mode>any</group_by_overflow_mode></small>
<reader><readonly>1</readonly></reader>
<silent><readonly>1</readonly><group_by_overflow_mode>any</group_by_overflow_mode></silent>
</profiles><quotas><default/></quotas><users>{users}</users></clickhouse>"""
USER = (
    "<{0}><password/><networks><ip>127.0.0.1</ip></networks><profile>{0}</profile><quota>default</quota></{0}>"
)  # fmt: skip


@pytest.fixture
def client_of(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """Return a function that opens a client of a server as a user with a settings profile."""
    names = ("default", "small", "reader", "silent")
    (tmp_path / "users.xml").write_text(USERS.format(users="".join(USER.format(name) for name in names)))
    server = Server(tmp_path, free_port())
    server.start()

    def open_client(user: str) -> Client:
        return connect(
            ClickHouseConnection(host="127.0.0.1", port=9000, http_port=server.port, database="d", username=user)
        )

    yield open_client
    server.end()


@pytest.mark.servers
def test_limits_of_a_profile_stay_and_what_it_would_cut_short_in_silence_fails(
    client_of: Callable[[str], Client],
) -> None:
    def in_force(client: Client, name: str) -> str:
        value = fetch(client, "SELECT value FROM system.settings WHERE name = {n:String}", {"n": name})[0][0]
        return str(value)

    checks = Checks(max_memory_mib=1024)
    small = client_of("small")
    set_limits(small, checks)
    assert in_force(small, "max_memory_usage") == "5000000"
    assert in_force(small, "max_execution_time") == "300"
    assert in_force(small, "group_by_overflow_mode") == "throw"

    usual = client_of("default")
    set_limits(usual, checks)
    assert in_force(usual, "max_memory_usage") == str(1024 * MIB)
    assert in_force(usual, "max_bytes_before_external_group_by") == str(512 * MIB)

    reader = client_of("reader")
    set_limits(reader, checks)
    assert fetch(reader, "SELECT 1") == [(1,)]
    assert in_force(reader, "max_memory_usage") == "0"

    with pytest.raises(LimitReached, match=r"group_by_overflow_mode = any.*set it to throw in the profile"):
        set_limits(client_of("silent"), checks)


@pytest.mark.servers
def test_sums_that_go_on_are_those_of_the_whole_ledger(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    arguments = (pipeline.client, pipeline.database, pipeline.config.pipeline_id)
    sums = read_sums(*arguments)
    assert sums.batches == 0
    assert add_later_batches(*arguments, sums) == sums
    sums = LedgerSums(pipeline.checkpoint_id)
    for batch in range(3):
        # The clock stood still between two batches: batch ids determine their order.
        pipeline.batch(f"a{batch}", f"b{batch}", duplicates=batch, ago=100 - batch // 2)
        sums = add_later_batches(*arguments, sums)
        assert sums == read_sums(*arguments)
        assert complete_totals(*arguments, sums) == read_totals(*arguments)
    assert (sums.batches, sums.last_batch, sums.outcomes.read, sums.outcomes.duplicates) == (3, 2, 9, 3)
    assert add_later_batches(*arguments, sums) == sums


@pytest.mark.servers
def test_waiting_events_are_a_level_of_the_last_batch(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    arguments = (pipeline.client, pipeline.database, pipeline.config.pipeline_id)
    ledger = f"{pipeline.database}.glassflow_ledger"
    found: list[LedgerSums] = []
    sums = LedgerSums(pipeline.checkpoint_id)
    for batch in range(2):
        pipeline.batch(f"a{batch}", ago=10 - batch)
        setting = f"UPDATE waiting = {7 - 3 * batch} WHERE batch_id = {batch} SETTINGS mutations_sync = 1"
        pipeline.execute(f"ALTER TABLE {ledger} {setting}")
        sums = add_later_batches(*arguments, sums)
        found.append(sums)
    assert [sums.outcomes.waiting for sums in found] == [7, 4]


@pytest.mark.servers
def test_a_batch_under_way_is_waited_for_and_the_whole_ledger_is_summed_once(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a", "b")
    pipeline.execute("INSERT INTO {table} VALUES ('c', now())")
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 60.0)
    summed: list[LedgerSums] = []
    reads: list[LedgerSums] = []

    def read(*arguments: Any) -> LedgerSums:
        summed.append(read_sums(*arguments))
        return summed[-1]

    def read_later(*arguments: Any) -> LedgerSums:
        reads.append(add_later_batches(*arguments))
        if len(reads) == 3:
            pipeline.execute("ALTER TABLE {table} DELETE WHERE id = 'c' SETTINGS mutations_sync = 1")
            pipeline.batch("c")
        return reads[-1]

    monkeypatch.setattr(counts, "read_sums", read)
    monkeypatch.setattr(counts, "add_later_batches", read_later)
    found = compare_counts(pipeline.config, print)
    assert (found.passed, found.exact, found.figures["batches"], found.figures["rows"]) == (True, True, 2, 3)
    assert len(summed) == 1
    assert len(reads) > 3


@pytest.mark.servers
def test_a_checkpoint_that_is_new_while_the_table_is_watched_is_the_one_that_is_judged(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a", "b", ago=100)
    reads: list[LedgerSums] = []

    def read_later(*arguments: Any) -> LedgerSums:
        reads.append(add_later_batches(*arguments))
        if len(reads) == 1:
            pipeline.execute("TRUNCATE TABLE {table}")
            pipeline.checkpoint_id, pipeline.batches, pipeline.offset = str(uuid4()), 0, 0
            pipeline.batch("a", "b", "c")
        return reads[-1]

    monkeypatch.setattr(counts, "add_later_batches", read_later)
    found = compare_counts(pipeline.config, print)
    assert (found.figures["written"], found.figures["rows"], found.figures["difference"]) == (3, 3, 0)


@pytest.mark.servers
def test_dead_letters_are_asked_for_within_the_limits(
    new_pipeline: NewPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a")
    assert examine_dead_letters(pipeline.config).passed
    limited: list[Checks] = []
    module = "glassflow_dagster.checks.waiting_dead_letters.set_limits"
    monkeypatch.setattr(module, lambda _, checks: limited.append(checks))
    examine_dead_letters(with_checks(pipeline.config, max_memory_mib=300))
    assert [checks.max_memory_mib for checks in limited] == [300]
