"""A Spark session for one comparison, for callers without a session: the command line."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.key_rules import KeysReport
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.kafka.client import java_libraries, java_options
from glassflow_dagster.stream.spark.session import DRIVER_JAVA_OPTIONS, start_session, stop_session


def reconcile_in_own_session(config: PipelineConfig, report: Callable[[str], None]) -> KeysReport:
    """Start a local Spark session, compare the keys, and stop Spark; raises `GlassflowError` when one fails."""
    options = java_options(config.connection)
    settings = {DRIVER_JAVA_OPTIONS: options} if options else {}
    with tempfile.TemporaryDirectory(prefix="glassflow-verify-") as scratch:
        report("starting Spark ...")
        jars = java_libraries(config.connection, report)
        spark = start_session(f"glassflow verify {config.pipeline_id}", Path(scratch), settings, report, jars)
        try:
            return reconcile_keys(spark, config, report)
        finally:
            stop_session(spark)
