"""The plan for a load: what grows with it, what limits it, and that it fits what was measured."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from glassflow_dagster.definition.capacity import coefficients
from glassflow_dagster.definition.capacity.coefficients import Kind
from glassflow_dagster.definition.capacity.model import Load, kind_of, make_plan, window_of
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig

SMS = load_pipeline(Path("pipelines/sms_status.yaml"), {})
ORDERS = load_pipeline(Path("pipelines/orders_with_users.yaml"), {})
STATELESS = SMS.model_copy(update={"transforms": ()})
LARGE_BLOCKS = SMS.model_copy(update={"sink": SMS.sink.model_copy(update={"max_batch_size": 50_000})})
LOAD = Load(rate=1_000, event_bytes=190, window=timedelta(hours=1), new_share=1.0, topic_partitions=None)
RESULTS = Path("benchmarks/results")


def at(rate: float) -> Load:
    return replace(LOAD, rate=rate)


def median(benchmark: str, case: str, figure: str) -> float:
    cases = json.loads((RESULTS / f"{benchmark}.json").read_text())["cases"]
    return float(cases[case]["figures"][figure]["median"])


def test_what_a_pipeline_does_follows_from_its_definition() -> None:
    assert kind_of(STATELESS) is Kind.STATELESS
    assert kind_of(SMS) is Kind.DEDUPLICATION
    assert kind_of(ORDERS) is Kind.JOIN
    assert window_of(STATELESS) == timedelta()
    assert window_of(SMS) == SMS.dedup.time_window if SMS.dedup else False


def test_a_small_load_needs_one_core_of_one_host_and_no_cluster() -> None:
    plan = make_plan(SMS, LOAD)
    assert (plan.cores, plan.executors, plan.topic_partitions, plan.state_partitions) == (1, 0, 1, 1)
    assert plan.keys == 1_000 * 3_600
    assert plan.is_reached
    assert 0 < plan.driver_busy < 1


def test_cores_grow_with_the_rate_until_a_cluster_is_needed() -> None:
    few_keys = replace(LOAD, window=timedelta(seconds=10))
    rates = (10_000, 100_000, 500_000, 2_000_000)
    plans = [make_plan(LARGE_BLOCKS, replace(few_keys, rate=rate)) for rate in rates]
    assert [plan.cores for plan in plans] == sorted(plan.cores for plan in plans)
    assert [bool(plan.executors) for plan in plans] == [False, False, False, True]
    for plan in plans:
        assert plan.state_partitions >= plan.cores
        assert plan.executors == 0 or plan.cores == 4 * plan.executors


def test_many_keys_need_cores_and_more_partitions_than_cores() -> None:
    week = make_plan(SMS, replace(LOAD, rate=2_000, window=timedelta(days=7)))
    assert week.keys == 2_000 * 7 * 86_400
    assert week.cores > make_plan(SMS, at(2_000)).cores
    assert week.state_partitions > week.cores
    assert week.state_partitions % week.cores == 0
    assert week.keys / week.state_partitions <= coefficients.KEYS_OF_PARTITION
    assert week.is_reached
    more = make_plan(SMS, replace(LOAD, rate=50_000, window=timedelta(days=7)))
    assert not more.is_reached
    assert more.walls[0].name == "keys"


def test_without_a_state_the_partitions_of_the_topic_are_the_tasks() -> None:
    plan = make_plan(STATELESS, at(500_000))
    assert plan.state_partitions == 0
    assert plan.topic_partitions == plan.cores > 1
    few = make_plan(STATELESS, replace(at(500_000), topic_partitions=1))
    assert not few.is_reached
    assert few.walls[0].name == "partitions of the topic"


def test_beyond_the_first_wall_a_load_is_not_reached() -> None:
    driver = next(wall for wall in make_plan(LARGE_BLOCKS, LOAD).walls if wall.name == "driver")
    assert math.isinf(make_plan(LARGE_BLOCKS, at(driver.rate * 1.05)).interval)
    small_blocks = make_plan(SMS.model_copy(update={"sink": SMS.sink.model_copy(update={"max_batch_size": 10})}), LOAD)
    assert small_blocks.walls[0].name == "inserts into ClickHouse"


@pytest.mark.parametrize(
    ("config", "case"), [(SMS, "within the driver, 1 core"), (SMS, "cluster, 1 worker"), (SMS, "cluster, 2 workers")]
)
def test_it_is_within_a_third_of_what_was_measured_of_an_event(config: PipelineConfig, case: str) -> None:
    """Of the measurements with one and two workers, which the model does not use but for the factor of a cluster."""
    factor = coefficients.CLUSTER_FACTOR if "cluster" in case else 1
    modelled = coefficients.SPARK[kind_of(config)].of(190) * factor
    measured = median("scale", case, "cpu_seconds_per_million_events_consumer")
    assert modelled == pytest.approx(measured, rel=1 / 3)


@pytest.mark.parametrize(
    "case", ["deduplicated, 190 bytes", "deduplicated, 1.5 kB", "deduplicated, 1.5 kB in 40 fields"]
)
def test_the_cost_of_an_event_is_that_of_the_shapes(case: str) -> None:
    measured = median("shapes", case, "cpu_seconds_per_million_events_consumer")
    modelled = coefficients.SPARK[Kind.DEDUPLICATION].of(190 if "190" in case else 1500)
    assert modelled == pytest.approx(measured, rel=0.15)
