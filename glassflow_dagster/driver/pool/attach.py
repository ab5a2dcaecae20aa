"""Attaches a driver to a pool: gives it a Spark session of the pool's JVM."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from glassflow_dagster.control.pool_endpoint import CLOSE_SECONDS, Reply, Request, pool_folder, read_endpoint
from glassflow_dagster.control.pool_launch import (
    ask,
    attached_pipelines,
    connect,
    ensure_pool,
    more_memory,
    wait_for_end,
)
from glassflow_dagster.definition.model.spark import is_session_setting, refused_in_pool
from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.jvm import kept_interrupts
from glassflow_dagster.driver.options import Report
from glassflow_dagster.driver.pool.crashes import TURN_SECONDS, Member
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.environment import variables
from glassflow_dagster.stream.spark.py4j_logging import be_quiet_about_lost_jvm

# Of pyspark, for a JVM that runs already.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS = 0.1
_SCHEDULER_POOL = "spark.scheduler.pool"


@contextmanager
def attached_session(
    state: Path, name: str, member: Member, settings: Mapping[str, str], report: Report
) -> Iterator[SparkSession]:
    """Attach to a pool for the block, and start the pool if it does not run; yield a session with its settings.

    member: the pipeline; one that ends the JVM again and again is refused. Raises `GlassflowError` when the pool cannot
    be used, for settings that its JVM would need, when the JVM ends, and for exceptions of Spark's in the block.
    """
    be_quiet_about_lost_jvm()
    _require_settings_of_a_session(name, settings)
    folder = pool_folder(state.resolve(), name)
    with ExitStack() as attached:
        while True:
            endpoint = ensure_pool(state, name, report)
            connection = attached.enter_context(connect(endpoint))
            # It first ends the queries of an earlier driver, and may let others in before.
            connection.settimeout(3 * CLOSE_SECONDS + TURN_SECONDS)
            checkpoint = str(member.checkpoint.absolute())
            request = Request(token=endpoint.token, pipeline=member.pipeline, checkpoint=checkpoint)
            reply = ask(connection, request)
            if not reply.is_ending:
                break
            wait_for_end(endpoint)
        more = partial(more_memory, state, name)
        with spark_failures(folder, more), _context(reply) as context, stream_failures(more):
            yield _session(context, reply, member.pipeline, settings)


def require_detached(state: Path, name: str, pipeline: str) -> None:
    """Wait until a pool has stopped the queries of a pipeline's last driver, which was attached to it.

    Raises `GlassflowError` where it has not within `CLOSE_SECONDS`, or does not answer.
    """
    deadline = time.monotonic() + CLOSE_SECONDS
    while (endpoint := read_endpoint(pool_folder(state.resolve(), name))) and pipeline in attached_pipelines(endpoint):
        if time.monotonic() > deadline:
            raise GlassflowError(
                f"{pipeline}: its last driver was in pool {name}, whose process (pid {endpoint.pid}) still runs its "
                "query; end that process with SIGKILL, then start the pipeline again"
            )
        time.sleep(_POLL_SECONDS)


def _require_settings_of_a_session(name: str, settings: Mapping[str, str]) -> None:
    """Raise `GlassflowError` for a setting that belongs to the pool's process."""
    for key in settings:
        if not is_session_setting(key):
            raise GlassflowError(refused_in_pool(key, name))


@contextmanager
def _context(reply: Reply) -> Iterator[SparkContext]:
    """Connect pyspark to the JVM's server for this driver; yield the context of the pool."""
    # Workers of the pool run this project's code; pyspark sends each task the interpreter that it needs.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with variables({_PORT: str(reply.port), _SECRET: reply.secret.get_secret_value()}):
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        session = gateway.jvm.glassflow.SharedSessions.of(reply.session)
        java_context = gateway.jvm.JavaSparkContext(session.sparkContext())
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        with kept_interrupts():
            conf = SparkConf(_jconf=java_context.sc().conf())
            context = SparkContext(conf=conf, gateway=gateway, jsc=java_context)
        yield context
    finally:
        _forget_context()


def _session(context: SparkContext, reply: Reply, pipeline: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the driver's session; raise `GlassflowError` for a setting that Spark does not take."""
    sessions: Any = context._jvm.glassflow.SharedSessions  # type: ignore[union-attr]
    spark = SparkSession(context, sessions.of(reply.session))
    sessions.restoreDefault(reply.session)
    context.setLocalProperty(_SCHEDULER_POOL, pipeline)
    for key, value in settings.items():
        try:
            spark.conf.set(key, value)
        except PySparkException as error:
            raise GlassflowError(f"Spark does not take {key}={value}: {error}") from error
    return spark


def _forget_context() -> None:
    """Let pyspark forget the JVM, so that this process can use another one.

    Its own way, `stop`, would stop the context of all drivers. The connections are closed by the pool, once this driver
    is detached: those whose threads wait for calls of the JVM cannot be closed here.
    """
    context, SparkContext._active_spark_context = SparkContext._active_spark_context, None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    if context is not None:
        context._accumulatorServer.shutdown()  # noqa: SLF001
