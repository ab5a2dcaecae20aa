"""The sensors that send alerts."""

import dagster as dg

from glassflow_dagster.orchestration.alert_sensors import data_quality_alerts, run_failure_alerts


@dg.definitions
def alerts() -> dg.Definitions:
    """Register the alert sensors."""
    return dg.Definitions(sensors=[data_quality_alerts, run_failure_alerts])
