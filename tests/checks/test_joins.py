"""Checks of joins besides the counts, on a real ClickHouse: duplicates, and the share of unmatched events.

Both sources are deduplicated, the left one within 10 minutes and the right one within 20; a left event waits 4 minutes
for a match, and a right one is kept for 15. So two rows of a left event are certainly wrong within 6 minutes of each
other, and two rows of a pair within 5.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml

from glassflow_dagster.checks.count_rules import CountsReport
from glassflow_dagster.checks.duplicates import DuplicatesReport, find_residual_duplicates
from glassflow_dagster.checks.unmatched import evaluate_unmatched, examine_unmatched
from glassflow_dagster.checks.verify import VerifyReport
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target
from tests.checks.batches import Batches
from tests.support.definition import clickhouse, dedup, definition, fields, mapping, sink, source

DAY = 86_400


def join_definition(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a join whose output renames the ids of both sources."""
    declared = fields(id="string", user="string", at="int")
    time_of = {"event_time": "at"} if changes.get("clock") == "event" else {}
    columns = [
        mapping("order", "String", "order_id"),
        mapping("user", "Nullable(String)", "user_id"),
        mapping("_batch_time", "DateTime64(3)", "came"),
    ]
    return definition(
        name,
        [source(side, declared) for side in ("orders", "users")],
        sink(columns, clickhouse(database=name), table="rows", create_table={"order_by": "order_id"}),
        dedup("orders", "id", time_window="10m"),
        dedup("users", "id", time_window="20m"),
        join={
            "enabled": True,
            "left_source": {"source_id": "orders", "key": "user", "time_window": "4m", **time_of},
            "right_source": {"source_id": "users", "key": "user", "time_window": "15m", **time_of},
            "output_fields": [
                {"source_id": "orders", "name": "id", "output_name": "order"},
                {"source_id": "users", "name": "id", "output_name": "user"},
            ],
            **changes,
        },
    )


@dataclass
class Joined(Batches):
    """A pipeline that joins two topics."""

    begun: float = field(default_factory=time.time)

    def batch(self, *rows: tuple[str, str | None], ago: float = 0.0, **outcomes: int) -> None:
        """Write the rows and the ledger row of a batch that began `ago` seconds before the test."""
        batch_time_ms = round((self.begun - ago) * 1000)
        if rows:
            block = pa.table({
                "order_id": [order for order, _ in rows],
                "user_id": pa.array([user for _, user in rows], pa.string()),
                "came": pa.array([batch_time_ms] * len(rows), pa.timestamp("ms", "UTC")),
            })  # fmt: skip
            self.insert(*self.config.sink.full_table, block)
        offsets = {"orders": {0: (self.batches, self.batches + 1)}}
        self.close_batch(batch_time_ms, offsets, Outcomes(records=outcomes.get("read", 0), **outcomes))

    def doubled(self) -> DuplicatesReport:
        """Search for duplicates."""
        return find_residual_duplicates(self.config, print)


NewJoin = Callable[..., Joined]


@pytest.fixture
def new_join(stack: Any, tmp_path: Path) -> NewJoin:
    def create(**changes: Any) -> Joined:
        name = f"test_{uuid4().hex}"
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(join_definition(name, changes)))
        config = load_pipeline(file, stack.environment)
        client = connect(config.sink.connection_params)
        prepare_target(client, config, create=True)
        ensure_bookkeeping(client, name)
        return Joined(config, client)

    return create


def with_transforms(join: Joined, *transforms: dict[str, Any]) -> PipelineConfig:
    """Return the definition of a join with these transforms instead of its own."""
    dumped = join.config.model_copy(update={"transforms": ()}).model_dump(mode="json", exclude_none=True)
    return PipelineConfig.model_validate({**dumped, "transforms": transforms})


@pytest.mark.parametrize(("apart", "right"), [(361, True), (359, False), (0, False)])
def test_two_rows_of_a_left_event_are_wrong_as_near_as_only_the_rest_of_the_window(
    new_join: NewJoin, apart: int, right: bool
) -> None:
    join = new_join()
    join.batch(("a", "u"), ("b", "u"), ago=500)
    join.batch(("a", "v"), ago=500 - apart)
    found = join.doubled()
    assert (found.passed, found.severity) == (right, "error")
    assert (found.figures["duplicate_rows"], found.figures["window_seconds"]) == (0 if right else 1, 360.0)


@pytest.mark.parametrize(("apart", "right"), [(301, True), (299, False)])
@pytest.mark.parametrize("user", ["u", None])
def test_with_all_matches_two_rows_of_a_pair_are_wrong_and_of_a_left_event_are_not(
    new_join: NewJoin, apart: int, right: bool, user: str | None
) -> None:
    join = new_join(match="all", type="left")
    join.batch(("a", user), ("a", "w"), ("b", user), ago=500)
    join.batch(("a", user), ("a", "x"), ago=500 - apart)
    found = join.doubled()
    assert (found.passed, found.severity) == (right, "error")
    assert found.figures["unique_keys"] == 4


def test_an_unmatched_event_that_waited_for_a_pipeline_that_stood_still_is_no_duplicate(new_join: NewJoin) -> None:
    join = new_join(type="left")
    join.batch(ago=2000, waiting=1)
    join.batch(("a", None), ago=500)  # long overdue; the key's window is over
    join.batch(("a", "u"), ago=400)
    assert join.doubled().passed
    join.batch(("a", "v"), ago=300)
    assert join.doubled().figures["duplicate_rows"] == 1


def test_where_nothing_waited_no_row_came_late(new_join: NewJoin) -> None:
    join = new_join(type="left")
    join.batch(ago=2000)
    join.batch(("a", None), ago=500)
    join.batch(("a", "u"), ago=400)
    assert not join.doubled().passed


@pytest.mark.parametrize(
    "changes",
    [{"clock": "event"}, {"left_source": {"source_id": "orders", "key": "user", "time_window": "10m"}}],
    ids=["event clock", "a left event waits as long as its key is remembered"],
)
def test_where_times_do_not_tell_rows_and_keys_of_the_whole_table_are_compared(
    new_join: NewJoin, changes: dict[str, Any]
) -> None:
    join = new_join(**changes)
    join.batch(("a", "u"), ("b", "u"), ago=500)
    assert join.doubled().passed
    join.batch(("a", "u"), ago=400)
    found = join.doubled()
    assert (found.passed, found.severity, found.figures["rows_beyond_keys"]) == (False, "warn", 1)
    assert "a key may come again at once" in found.description


def test_keys_are_found_behind_renames_and_missed_where_an_expression_makes_them(new_join: NewJoin) -> None:
    join = new_join()
    join.batch(("a", "u"), ("a", "v"))
    once = {"type": "dedup", "source_id": "orders", "config": {"key": "id", "time_window": "10m"}}

    def found(expression: str) -> DuplicatesReport:
        outputs = [
            {"expression": expression, "output_name": "order"}, {"expression": "user", "output_name": "user"},
        ]  # fmt: skip
        made = {"type": "stateless", "source_id": "join", "config": {"transforms": outputs}}
        return find_residual_duplicates(with_transforms(join, once, made), print)

    assert found("order").figures["duplicate_rows"] == 1
    lower = found("lower(order)")
    assert (lower.passed, lower.severity) == (False, "warn")
    assert lower.description.startswith("Cannot be checked: a key field has no column")


def test_without_deduplication_of_the_left_source_equal_keys_are_lawful(new_join: NewJoin) -> None:
    join = new_join()
    join.batch(("a", "u"), ("a", "v"))
    found = find_residual_duplicates(with_transforms(join), print)
    assert found.passed
    assert "deduplication of the left source" in found.description


def test_the_share_of_unmatched_events_is_that_of_the_last_day_and_the_newest_checkpoint(new_join: NewJoin) -> None:
    join = new_join()
    join.batch(matched=5, unmatched=95, ago=1000)
    join.checkpoint_id, join.batches = str(uuid4()), 0
    join.batch(matched=0, unmatched=1000, ago=DAY + 60, waiting=9)
    join.batch(matched=190, unmatched=4, ago=600, waiting=3)
    join.batch(matched=0, unmatched=6, ago=10, waiting=2)
    found = examine_unmatched(join.config)
    assert found.passed
    assert found.figures == {"unmatched": 10, "matched": 190, "unmatched_percent": 5.0, "waiting": 2}
    limited = join.config.checks.model_copy(update={"max_unmatched": "4.9%"})
    assert not examine_unmatched(join.config.model_copy(update={"checks": limited})).passed


def test_a_join_that_has_decided_nothing_has_no_share(new_join: NewJoin) -> None:
    found = examine_unmatched(new_join().config)
    assert (found.passed, found.description) == (True, "No left event was decided within the last day.")
    assert found.figures["unmatched_percent"] == 0.0


@pytest.mark.parametrize(
    ("allowed", "passed"), [(None, True), (0, False), (9, False), (10, True), ("5%", True), ("4.9%", False)]
)
def test_unmatched_events_are_allowed_by_number_or_share(allowed: int | str | None, passed: bool) -> None:
    found = evaluate_unmatched(allowed, matched=190, unmatched=10, waiting=0)
    assert found.passed is passed
    assert found.description.startswith(
        "10 of 200 left events (5.0%) that were decided within the last day had no match"
    )
    assert ("checks.max_unmatched allows" in found.description) is not passed


def test_unmatched_events_are_shown_beside_the_counts_and_decide_nothing() -> None:
    counts = CountsReport(passed=True, exact=True, description="agree")
    duplicates = DuplicatesReport(passed=True, severity="error", description="none")
    found = VerifyReport("p", counts, duplicates, evaluate_unmatched(0, matched=1, unmatched=1, waiting=0))
    assert found.passed
    assert [line.split(":")[0] for line in found.lines() if not line.startswith(" ")] == [
        "ok      counts_agree", "ok      no_residual_duplicates", "WARNING unmatched_share",
    ]  # fmt: skip
    assert found.as_dict()["unmatched"]["figures"]["unmatched"] == 1
    assert "unmatched" not in VerifyReport("p", counts, duplicates).as_dict()
