"""Checks of a start before a session is opened; a mismatch of definition and checkpoint even before any server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_column_type
from glassflow_dagster.driver import jvm
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.driver.start import prepare as module
from glassflow_dagster.driver.start.outdated_batch import find_outdated_batch
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.table import Column, Table
from glassflow_dagster.stores.kafka.topics import Cleanup
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.stages.decode.registry import registries_of
from tests.driver.test_heartbeat_writer import CONFIG
from tests.stream.delivery.test_partition_writer import batch_plan

TABLE = Table("d", "t", "MergeTree", "MergeTree", {}, rows=0, ttl=False)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM is launched, and a session of it is a failure."""

    def fail() -> None:
        pytest.fail("Spark is started")

    launched = Mock(open_session=fail)
    monkeypatch.setattr(jvm, "prepare_jvm", lambda *_: Mock(launch=lambda _: launched))


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        pytest.fail("a server is asked")

    monkeypatch.setattr(module, "wait_for_clickhouse", fail)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake the servers: every lookup succeeds until the comparison with the checkpoint."""
    monkeypatch.setattr(module, "wait_for_clickhouse", Mock())
    monkeypatch.setattr(module, "prepare_tables", lambda *_: TABLE)
    monkeypatch.setattr(module, "prepare_topics", Mock())
    monkeypatch.setattr(module, "require_topics", Mock())
    monkeypatch.setattr(module, "cleanup_of", lambda *_: Cleanup(frozenset(), frozenset()))


def edited(change: Callable[[dict[str, Any]], None]) -> PipelineConfig:
    definition = CONFIG.model_dump(mode="json", by_alias=True)
    change(definition)
    return PipelineConfig.model_validate(definition)


def another_table(definition: dict[str, Any]) -> None:
    definition["sink"]["table"] = "u"


def another_topic(definition: dict[str, Any]) -> None:
    definition["sources"][0]["topic"] = "u"


def a_key(definition: dict[str, Any]) -> None:
    definition["transforms"] = [{"type": "dedup", "source_id": "s", "config": {"keys": ["x"], "time_window": "1h"}}]


def new_checkpoint(state: Path) -> Checkpoint:
    made = Checkpoint(state / CONFIG.pipeline_id / "checkpoint")
    made.create(CONFIG, rows_before=0, shuffle_partitions=1)
    return made


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (another_table, r"writes to d\.t, but the definition says d\.u"),
        (another_topic, "reads topic t, but the definition says u"),
        (a_key, "was built for no deduplication, but the definition says deduplication by x int"),
    ],
)
def test_a_definition_that_does_not_fit_its_checkpoint_is_refused_without_spark_or_a_server(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    new_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=problem):
        run_pipeline(edited(change), RunOptions(tmp_path), print)


@pytest.mark.usefixtures("servers")
def test_a_definition_that_does_not_fit_what_accepted_loss_leaves_is_refused_without_spark(tmp_path: Path) -> None:
    new_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="writes to"):
        run_pipeline(edited(another_table), RunOptions(tmp_path, accept=Mock()), print)


@pytest.mark.usefixtures("servers")
def test_a_table_that_was_written_by_a_lost_checkpoint_is_refused_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "require_nothing_written", Mock(side_effect=CheckpointError("has written")))
    with pytest.raises(CheckpointError, match="has written"):
        run_pipeline(CONFIG, RunOptions(tmp_path), print)


@pytest.mark.usefixtures("servers")
def test_a_start_that_the_topic_does_not_allow_is_refused_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_checkpoint(tmp_path)
    monkeypatch.setattr(module, "starting_offsets", Mock(side_effect=GlassflowError("no such start")))
    with pytest.raises(GlassflowError, match="no such start"):
        run_pipeline(CONFIG, RunOptions(tmp_path), print)


@pytest.mark.usefixtures("servers")
def test_an_open_batch_of_a_definition_that_is_not_kept_is_refused_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_checkpoint(tmp_path)
    monkeypatch.setattr(Checkpoint, "pending_plan", lambda _: batch_plan({"t": {0: (0, 2)}}))
    monkeypatch.setattr(Checkpoint, "next_batch", 1)
    monkeypatch.setattr("glassflow_dagster.driver.start.outdated_batch.fits", lambda *_: False)
    with pytest.raises(CheckpointError, match="was started with another definition, which is not stored"):
        run_pipeline(CONFIG, RunOptions(tmp_path), print)


def test_an_open_batch_is_finished_by_the_definition_and_the_types_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def smaller_blocks(definition: dict[str, Any]) -> None:
        definition["sink"]["max_batch_size"] = 7

    checkpoint, now = (
        new_checkpoint(tmp_path),
        replace(TABLE, columns={"x": Column(parse_column_type("Int32"), "", "Int32")}),
    )
    checkpoint.keep_definition(CONFIG)
    begun = {"batch_id": 3, "definition": CONFIG.digest, "types": {"x": "Int64"}}
    plan = batch_plan({"t": {0: (0, 2)}}).model_copy(update=begun)
    monkeypatch.setattr(Checkpoint, "pending_plan", lambda _: plan)
    for config in (CONFIG, edited(smaller_blocks)):
        found = find_outdated_batch(config, [now], checkpoint)
        assert found is not None
        assert (found.batch_id, found.config.digest) == (3, CONFIG.digest)
        assert str(found.tables([now])[0].columns["x"].type) == "Int64"

    then = replace(TABLE, columns={"x": Column(parse_column_type("Int64"), "", "Int64")})
    assert find_outdated_batch(CONFIG, [then], checkpoint) is None


def test_a_batch_of_an_older_definition_reaches_the_registry_of_the_new_one() -> None:
    """The kept definition has no secrets, and its address may be wrong."""

    def with_registry(**keys: str) -> Callable[[dict[str, Any]], None]:
        def change(definition: dict[str, Any]) -> None:
            definition["sources"][0] |= {"format": "avro", "schema_registry": {"url": "http://registry", **keys}}

        return change

    kept = PipelineConfig.model_validate(edited(with_registry(api_key="old", api_secret="x")).model_dump(mode="json"))
    (registry,) = registries_of(kept, edited(with_registry(url="http://other", bearer_token="shh"))).values()
    assert (registry.url, registry.api_key) == ("http://other", None)
    assert registry.bearer_token is not None
    assert registry.bearer_token.get_secret_value() == "shh"
    with pytest.raises(GlassflowError, match="put it back, run once, then remove it"):
        registries_of(kept, CONFIG)
    assert registries_of(CONFIG, CONFIG) == {}
