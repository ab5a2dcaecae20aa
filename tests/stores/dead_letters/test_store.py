"""Listing, selecting and deleting dead letters, and the effect on the ledger and the check."""

import json
import sys
import time
from typing import Any

import pytest
from click.testing import CliRunner

from glassflow_dagster.checks.limits import allowed_count
from glassflow_dagster.checks.waiting_dead_letters import Cause, describe, examine_dead_letters
from glassflow_dagster.cli import main
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS
from glassflow_dagster.stores.bookkeeping.totals import read_totals
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.dead_letters import purge as purging
from glassflow_dagster.stores.dead_letters.condition import WrongCondition, within_parentheses
from glassflow_dagster.stores.dead_letters.purge import purge
from glassflow_dagster.stores.dead_letters.replay import replay
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore
from tests.stores.dead_letters.conftest import DeadLetterPipeline


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("1; DROP TABLE t", "';' would end the statement"),
        ("1) OR (1", "')' has no opening bracket"),
        ("(1", "')' is missing"),
        ("[1)", "')' has no opening bracket"),
        ("stage = 'decode", "not closed"),
        ("1 /* open", "not closed"),
        ("  -- nothing", "is empty"),
        # Each closes the parentheses on ClickHouse 26.9, but is well-formed to a parser that does not know the sign.
        ("1 # (\n) OR ( 1 # )", "'#' is not allowed"),
        ("1 #! (\n) OR ( 1 #! )", "'#' is not allowed"),
        ("1 // (\n) OR ( 1 // )", "'//' is not allowed"),
        ("length($$ ( $$) > 0 ) OR ( 1 = length($$ ) $$)", "'$' is not allowed"),
        ("1 AS a$b$ ) OR (1 AS x$b$", "'$' is not allowed"),
        ("'' != \u2018 ( \u2019 ) OR ( \u2018 ) \u2019 != ''", "'\u2018' is not allowed"),
        ("1 \0 (\n) OR (1", "is not allowed"),
    ],
)
def test_a_condition_cannot_reach_beyond_its_parentheses(condition: str, problem: str) -> None:
    with pytest.raises(WrongCondition) as raised:
        within_parentheses(condition)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "condition",
    [
        "stage = 'de;co)de'",
        "reason LIKE '%it''s (%'",
        "`key` IN ('a') -- ) a comment;",
        "match(reason, '\\\\(')",
        "/* ; */ 1",
        "reason = '# $$ // \u2018' AND attempt / 2 > -1 AND headers[1].1 || 'x' != 'y' -- // # $",
        '`odd``name` = "odd""name"',
    ],
)
def test_texts_and_comments_may_hold_anything(condition: str) -> None:
    assert within_parentheses(condition) == f"(\n{condition}\n)"


@pytest.mark.servers
def test_conditions_of_every_kind_select_among_the_pipelines_own_dead_letters(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", b"b", b"")
    pipeline.batch(None, stage="mapping")
    other = DeadLetterStore(pipeline.store.client, pipeline.store.database, "another")
    assert other.count() == 0
    for condition, count in {
        "1": 4, "stage = 'mapping'": 1, "value IS NULL": 1, "value = 'a' OR value = 'b' -- x": 2, "NOT replayed": 4,
        "batch_time > now() - INTERVAL 1 HOUR": 4, "reason LIKE '%byte 1'": 1, "attempt > 0 OR replayed": 0,
        "headers[1].name = 'h'": 4, "pipeline_id = 'another' OR 1": 4,
    }.items():  # fmt: skip
        assert pipeline.store.count(condition) == count, condition
        assert len(list(pipeline.store.read(condition))) == count
    for wrong in ("stag = 'x'", "1 1", "count(", "(SELECT 1 FROM nowhere)", "{x:String}"):
        with pytest.raises(WrongCondition) as raised:
            pipeline.store.count(wrong)
        assert str(raised.value).startswith(f"--where {wrong!r}: ")
        assert "\n" not in str(raised.value)


@pytest.mark.servers
def test_list_shows_bytes_to_people_and_programs(pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.batch(b"\x1b[2J\x00\xff", b"x" * 500, reason="field '\x1b[2J': is missing")
    pipeline.batch(None, "h\u00e9".encode())
    module = sys.modules["glassflow_dagster.cli.dead_letters"]
    monkeypatch.setattr(module, "find_definition", lambda *_: pipeline.config)

    def run(*options: str) -> Any:
        return CliRunner().invoke(main, ["dead-letters", "list", "p", *options])

    shown = run()
    lines = shown.stdout.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[0] == "record"
    assert [line.split()[0].rpartition("/")[2] for line in lines[1:]] == ["101", "100", "1", "0"]
    assert lines[1].endswith("h\u00e9")
    assert lines[2].endswith("(none)")
    assert lines[3].endswith("xxx...")
    assert lines[4].endswith("\\x1b[2J\\x00\\xff")
    assert "field '\\x1b[2J': is missing" in lines[4]
    assert "\x1b" not in shown.stdout
    assert shown.stderr == "4 dead letters\n"
    assert run("--limit", "1").stderr == "4 dead letters; 3 more, --limit shows them\n"

    found = json.loads(run("--json").stdout)
    assert [dead_letter["offset"] for dead_letter in found] == [101, 100, 1, 0]
    assert [dead_letter["value"] for dead_letter in found[:2]] == ["h\u00e9", None]
    assert found[3]["value"] == {"base64": "G1sySgD/"}
    assert found[3]["key"] == {"base64": "a/8="}
    assert json.loads(run("--json", "--where", "0").stdout) == []
    wrong = run("--where", "nothing = 1")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (1, 1)


@pytest.mark.servers
def test_purged_dead_letters_are_gone_and_the_ledger_adds_up(
    pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.batch(b"a", b"b", b"c")
    database, pipeline_id = pipeline.store.database, pipeline.config.pipeline_id

    def counted() -> tuple[int, int, int]:
        totals = read_totals(pipeline.store.client, database, pipeline_id)
        return totals.dead_letters_stored, totals.dead_letters_purged, totals.dead_letters_expired

    assert purge(pipeline.store, "value = 'a'") == 1
    assert (counted(), pipeline.store.count()) == ((2, 1, 0), 2)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(purging, "delete_purged", die)
        with pytest.raises(KeyboardInterrupt):
            purge(pipeline.store, "value = 'b'")
    # Marked as deleted and invisible to every command; rows still stored are counted once.
    assert (counted(), pipeline.store.count(), replay(pipeline.config, "1", print).sent) == ((2, 1, 0), 1, 1)
    assert purge(pipeline.store, "replayed") == 1
    assert (counted(), pipeline.store.count(), purge(pipeline.store, "1")) == ((0, 3, 0), 0, 0)
    assert [record.value for record in pipeline.topic()] == [b"c"]


@pytest.mark.servers
def test_expired_dead_letters_are_not_missed(pipeline: DeadLetterPipeline) -> None:
    now = int(time.time())
    pipeline.batch(b"a", b"b", expires_at=now - 10)
    pipeline.batch(b"c", expires_at=now + 3600)
    pipeline.batch(b"soon", expires_at=now + 60)
    pipeline.batch(b"d", b"e", b"f")
    store = pipeline.store
    assert purge(store, "value IN ('c', 'd')") == 2
    for _ in range(2):
        totals = read_totals(store.client, store.database, store.pipeline_id)
        counts = (totals.dead_letters_stored, totals.dead_letters_purged, totals.dead_letters_expired)
        assert counts == (2, 2, 3)
        execute(store.client, f"OPTIMIZE TABLE {DEAD_LETTERS.full_name(store.database)} FINAL")
    assert {dead_letter.value for dead_letter in store.read("1")} == {b"soon", b"e", b"f"}


@pytest.mark.servers
def test_the_check_counts_what_waits_and_says_why(pipeline: DeadLetterPipeline) -> None:
    assert examine_dead_letters(pipeline.config).description == "No dead letters are waiting."
    pipeline.batch(b"earlier")
    pipeline.start_new_checkpoint()
    pipeline.batch(b"a", b"b", b"c")
    pipeline.batch(b"d", stage="mapping", reason="column 'n' (Int8): 300 is out of range -128..127")
    pipeline.batch(b"e", stage="mapping", reason="column 'n' (Int8): 4000 is out of range -128..127")
    pipeline.batch(b"f", stage="mapping", reason="column 't' (DateTime): 'yester'day' is not a time")
    pipeline.batch(b"g", stage="insert", reason="Cannot parse string 'secret' as Int8: expected 'x'")
    found = examine_dead_letters(pipeline.config)
    assert not found.passed
    assert found.figures == {"waiting": 7, "stored": 8, "read": 7, "allowed": 0}
    assert [tuple(cause) for cause in found.causes] == [
        ("decode", "invalid JSON: byte N", 3),
        ("mapping", "column 'n' (Int8): N is out of range -N..N", 2),
        ("insert", "Cannot parse string '...'", 1),
        ("mapping", "column 't' (DateTime): '...' is not a time", 1),
    ]
    assert [dead_letter.value for dead_letter in found.last] == [b"g", b"f", b"e", b"d", b"c", b"b", b"a"]
    assert "7 dead letters wait, of 7 records read; checks.max_dead_letters allows 0" in found.description
    for allowed in (7, "100%"):
        config = pipeline.config.model_copy(update={"checks": Checks(max_dead_letters=allowed)})
        assert examine_dead_letters(config).passed
    replay(pipeline.config, "1", print)
    assert examine_dead_letters(pipeline.config).passed


@pytest.mark.parametrize(("allowed", "read", "count"), [(0, 10, 0), (7, 0, 7), ("0.5%", 1999, 9), ("100%", 3, 3)])
def test_a_limit_is_a_number_or_a_share_of_what_was_read(allowed: int | str, read: int, count: int) -> None:
    assert allowed_count(allowed, read) == count


def test_one_dead_letter_is_reported_in_the_singular() -> None:
    found = describe(1, 1, 10, (Cause("decode", "why", 1),))
    assert found.startswith("1 dead letter waits, of 10 records read. Most often: decode: why. Fix the cause")


@pytest.mark.servers
def test_dead_letters_of_a_batch_that_is_not_in_the_ledger_are_left_out(pipeline: DeadLetterPipeline) -> None:
    """A batch that was given up has left some; the next one has its number, and the same records."""
    pipeline.batch(b"given up", first=0, is_open=True)
    assert (pipeline.store.count(), purge(pipeline.store, "1")) == (0, 0)
    assert replay(pipeline.config, "1", print).sent == 0
    pipeline.batch(b"of the ledger", first=0)
    assert [letter.value for letter in pipeline.store.read("1")] == [b"of the ledger"]
    totals = read_totals(pipeline.client, pipeline.database, pipeline.config.pipeline_id)
    assert (totals.dead_letters_stored, totals.outcomes.dead_letters) == (1, 1)
    assert replay(pipeline.config, "1", print).sent == 1
    assert [record.value for record in pipeline.topic()] == [b"of the ledger"]
