"""When Dagster requests materializations by itself."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.orchestration.asset_keys import build_asset_keys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG, longest_gap

NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)


def requested(definitions: dg.Definitions, materialized: list[dg.AssetKey]) -> list[int]:
    """Count the requests just after noon, a minute later, and after the next quarter of an hour."""
    with dg.DagsterInstance.ephemeral() as instance:
        for key in materialized:
            instance.report_runless_asset_event(dg.AssetMaterialization(key))
        counts, cursor = [], None
        for minutes in (0, 1, 15):
            found = dg.evaluate_automation_conditions(
                defs=definitions, instance=instance, cursor=cursor, evaluation_time=NOON + timedelta(minutes=minutes)
            )
            cursor = found.cursor
            counts.append(found.total_requested)
        return counts


def test_a_health_check_follows_the_schedule(definition: Path, loaded: dg.Definitions) -> None:
    assert requested(loaded, build_asset_keys(load_pipeline(definition)).assets) == [0, 0, 3]


def test_nothing_is_requested_before_somebody_has_materialized_it(loaded: dg.Definitions) -> None:
    assert requested(loaded, []) == [0, 0, 0]


def test_health_checks_are_on_from_the_start_and_marked_as_nobodys_wish(loaded: dg.Definitions) -> None:
    sensor = loaded.get_repository_def().get_sensor_def("sms_status__health_check")
    assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.run_tags == {AUTOMATED_TAG: "health_check"}


@pytest.mark.parametrize(
    ("cron", "gap"),
    [
        ("*/15 * * * *", timedelta(minutes=15)),
        ("* * * * *", timedelta(minutes=1)),
        ("*/15 9-17 * * 1-5", timedelta(days=2, hours=15, minutes=15)),
        ("0 6 * * *", timedelta(days=1)),
    ],
)
def test_the_freshness_window_rests_on_the_longest_gap_of_the_schedule(cron: str, gap: timedelta) -> None:
    assert longest_gap(cron) == gap
