"""When Dagster checks the health of streams by itself, and that nothing downstream takes a check for new data."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import launch_driver
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.asset_keys import build_asset_keys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG, freshness_policy, next_tick
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_pipeline_definitions
from glassflow_dagster.orchestration.health_checks import (
    PIPELINES_A_RUN,
    Cursor,
    Scheduled,
    build_health_check_job,
    evaluate,
    load_cursor,
)
from glassflow_dagster.orchestration.options import Automation

CONFIG = load_pipeline(Path(__file__).parents[2] / "pipelines" / "sms_status.yaml", {})
QUARTERS = "*/15 * * * *"
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC).timestamp()
QUARTER = 15 * 60


def scheduled(name: str, cron: str = QUARTERS) -> Scheduled:
    config = CONFIG.model_copy(update={"pipeline_id": name})
    return Scheduled(config, build_asset_keys(config), cron)


def requested(result: dg.SensorResult) -> list[str]:
    """Return the pipelines whose assets are requested, in order."""
    keys = [key for request in result.run_requests or () for key in request.asset_selection or ()]
    return list(dict.fromkeys(key.path[0] for key in keys))


def tick(
    pipelines: list[Scheduled],
    cursor: str | None,
    now: float,
    *,
    wanted: bool = True,
    busy: tuple[dg.AssetKey, ...] = (),
) -> dg.SensorResult:
    return evaluate(pipelines, load_cursor(cursor), now, is_wanted=lambda _: wanted, under_way=lambda: frozenset(busy))


def test_a_health_check_follows_the_schedule_of_its_definition() -> None:
    pipelines = [scheduled("often"), scheduled("rarely", "0 * * * *")]
    counts, cursor = [], None
    for now in (NOON, NOON + 60, NOON + QUARTER, NOON + QUARTER + 30, NOON + 4 * QUARTER):
        result = tick(pipelines, cursor, now)
        cursor = result.cursor
        counts.append(requested(result))
    assert counts == [[], [], ["often"], [], ["often", "rarely"]]


def test_a_check_that_is_under_way_delays_the_next_one_until_it_has_ended() -> None:
    one = scheduled("orders")
    first = tick([one], None, NOON)
    busy = tick([one], first.cursor, NOON + QUARTER, busy=(one.keys.table,))
    assert requested(busy) == []
    assert requested(tick([one], busy.cursor, NOON + QUARTER + 30)) == ["orders"]


def test_a_stream_that_nobody_wants_is_not_checked_and_its_ticks_are_not_made_up_for() -> None:
    one = scheduled("orders")
    first = tick([one], None, NOON)
    stopped = tick([one], first.cursor, NOON + QUARTER, wanted=False)
    assert requested(stopped) == []
    assert requested(tick([one], stopped.cursor, NOON + QUARTER + 30)) == []


def test_several_pipelines_share_a_run_which_is_marked_as_nobodys_wish() -> None:
    pipelines = [scheduled(f"orders_{number}") for number in range(2 * PIPELINES_A_RUN + 1)]
    first = tick(pipelines, None, NOON)
    result = tick(pipelines, first.cursor, NOON + QUARTER)
    requests = list(result.run_requests or ())
    assert [len(request.asset_selection or ()) for request in requests] == [75, 75, 3]
    assert {request.tags[AUTOMATED_TAG] for request in requests} == {"health_check"}
    assert len({request.run_key for request in requests}) == 3


def test_a_cursor_of_another_version_begins_the_schedules_anew() -> None:
    assert load_cursor('{"done_until": 3}') == load_cursor(None) == Cursor()


def test_the_sensor_requests_a_check_of_a_stream_that_runs(deployment: Deployment) -> None:
    config, runner = deployment.config, LocalRunner(deployment.state)
    defs = build_pipeline_definitions(config, Orchestration(runner=runner))
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def("glassflow__health_checks")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    cursor = Cursor(done_until={config.pipeline_id: NOON}).model_dump_json()

    def requests() -> int:
        with (
            dg.instance_for_test() as instance,
            dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor) as context,
        ):
            return len(sensor.evaluate_tick(context).run_requests or ())

    assert requests() == 0
    launch_driver(deployment)
    assert requests() == 1


def test_sensors_can_wait_until_they_are_switched_on_and_the_health_checks_can_be_left_out() -> None:
    defs = build_pipeline_definitions(CONFIG, Orchestration(automation=Automation(running=False, health_checks=False)))
    assert {sensor.name: sensor.default_status for sensor in defs.sensors or ()} == dict.fromkeys(
        ("glassflow__observer", "glassflow__alerts", "glassflow__run_failures"), dg.DefaultSensorStatus.STOPPED
    )


def test_what_depends_on_the_table_reacts_to_new_data_and_not_to_health_checks(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = deployment.config
    table = build_asset_keys(config).table
    pipeline = build_pipeline_definitions(config, Orchestration(runner=LocalRunner(deployment.state)))

    @dg.asset(deps=[table], automation_condition=dg.AutomationCondition.eager())
    def report() -> None:
        """An asset of the user."""

    defs = dg.Definitions.merge(pipeline, dg.Definitions(assets=[report]))
    job = defs.resolve_job_def("glassflow__health_check")
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:

        def requests(tags: dict[str, str], version: str) -> int:
            """Run the job at a data version; return how often the user's asset is requested then."""
            nonlocal cursor
            monkeypatch.setattr(
                "glassflow_dagster.orchestration.assets.data_version", lambda _: dg.DataVersion(version)
            )
            assert job.execute_in_process(instance=instance, tags=tags).success
            found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
            cursor = found.cursor
            return found.get_num_requested(report.key)

        automated = {AUTOMATED_TAG: "health_check"}
        # Dagster requests nothing at its first look.
        assert requests({}, "1") == 0
        assert requests(automated, "1") == 0
        assert requests(automated, "2") == 1
        assert requests(automated, "2") == 0
        assert requests({}, "2") == 1


def test_the_job_of_health_checks_has_the_assets_of_all_pipelines() -> None:
    keys = [scheduled(name).keys for name in ("orders", "payments")]
    job = build_health_check_job("shop", keys)
    assert job.name == "shop__health_check"


@pytest.mark.parametrize(
    ("cron", "after", "tick_at"),
    [
        (QUARTERS, NOON, NOON - 30 + QUARTER),
        (QUARTERS, NOON - 30, NOON - 30 + QUARTER),
        ("0 6 * * *", NOON, NOON - 30 + 18 * 3600),
    ],
)
def test_the_next_tick_is_later_than_the_time(cron: str, after: float, tick_at: float) -> None:
    assert next_tick(cron, after) == tick_at


def test_a_table_is_fresh_by_its_data_where_the_definition_says_how_old_they_may_be() -> None:
    assert freshness_policy(CONFIG) is None
    checks = CONFIG.checks.model_validate({"max_age": "2h"})
    policy = freshness_policy(CONFIG.model_copy(update={"checks": checks}))
    assert policy is not None
    assert (policy.fail_window.to_timedelta(), policy.warn_window.to_timedelta()) == (
        checks.max_age, checks.max_age / 2
    )  # fmt: skip
