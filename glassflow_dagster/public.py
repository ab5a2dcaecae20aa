"""The functions that other Python code uses: in a Dagster project, in pytest, in a notebook.

`from glassflow_dagster import ...` gives each of them; see docs/reference/python.md. Their names, parameters and
results stay from 0.2 on. Nothing here imports Spark, Dagster or a server's client before it is called.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

from glassflow_dagster.definition.load import load_pipeline as load_file
from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import STATE
from glassflow_dagster.errors import GlassflowError

if TYPE_CHECKING:
    from glassflow_dagster.checks.verify import VerifyReport
    from glassflow_dagster.stores.bookkeeping.outcomes import Totals
    from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals


def load_pipeline(source: str | Path | Mapping[str, Any]) -> PipelineConfig:
    """Load a pipeline definition of any version of GlassFlow's format: a YAML or JSON file, or the same as a dict.

    References such as `${VAR}` are replaced by environment variables. The servers that GLASSFLOW_KAFKA_BROKERS,
    GLASSFLOW_CLICKHOUSE_URL and GLASSFLOW_CONNECTIONS name replace those of the definition. Raises `DefinitionError`, a
    `GlassflowError`, with every mistake in it.
    """
    if isinstance(source, Mapping):
        return load_written(source)
    return load_file(Path(source))


def run_pipeline(  # noqa: PLR0913 - the options of the command `run`
    pipeline: PipelineConfig,
    *,
    until_caught_up: bool = True,
    state: str | Path | None = None,
    create_table: bool = False,
    timeout: float = 300.0,
    spark: Mapping[str, str] | None = None,
    report: Callable[[str], None] = print,
) -> "Totals":
    """Run a pipeline in a process of its own and wait for its end; return the totals of the batches that it committed.

    until_caught_up: end when all records that the topics hold now are read; otherwise it runs until it is stopped.
    state: the folder of checkpoints, or the URL of their store; by default GLASSFLOW_STATE, else `.glassflow/state`.
    create_table: create a missing table even where the definition does not say so.
    timeout: seconds to wait for a server.
    spark: settings of its Spark session.
    report: gets the driver's messages, one line each.
    Raises `GlassflowError` when the pipeline fails. When the wait is interrupted, the pipeline is stopped after its
    current batch.
    """
    from glassflow_dagster.control.deployment import Deployment  # noqa: PLC0415 - see the module
    from glassflow_dagster.control.log import failure_in  # noqa: PLC0415 - see the module
    from glassflow_dagster.control.state_folder import state_folder  # noqa: PLC0415 - see the module
    from glassflow_dagster.stores.bookkeeping.outcomes import Totals  # noqa: PLC0415 - see the module

    environment = {**os.environ, **({STATE: str(state)} if state is not None else {})}
    deployment = Deployment(state_folder(environment), create_table, timeout, dict(spark or {}), config=pipeline)
    options = ["--print-totals", "--timeout", str(timeout), *(["--until-caught-up"] if until_caught_up else [])]
    with subprocess.Popen(
        [*deployment.command, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        messages: list[str] = []
        reader = Thread(target=_read_messages, args=(process.stderr, messages, report))
        reader.start()
        try:
            process.stdin.write(deployment.stdin)
            process.stdin.close()
            output = process.stdout.read()
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            reader.join()
    if code:
        reason = failure_in(messages[-1]) if messages else ""
        raise GlassflowError(f"{pipeline.pipeline_id}: {reason or f'the driver ended with exit code {code}'}")
    return Totals.model_validate(json.loads(output.splitlines()[-1]))


def _read_messages(stream: IO[bytes], messages: list[str], report: Callable[[str], None]) -> None:
    """Collect and report a driver's messages until it ends."""
    for line in stream:
        messages.append(line.decode(errors="replace").rstrip())
        report(messages[-1])


def verify_pipeline(
    pipeline: PipelineConfig, *, exact: bool = False, report: Callable[[str], None] = print
) -> "VerifyReport":
    """Compare the records in Kafka with the rows in ClickHouse, as the command `verify` does.

    `passed` of the report is true when no row is missing or doubled; `lines()` says what was compared.

    exact: compare every key, too, with a Spark session of its own in this process.
    report: gets progress, one line each.
    Raises `GlassflowError` when Kafka or ClickHouse cannot be reached, or the table is missing.
    """
    from glassflow_dagster.checks import verify  # noqa: PLC0415 - see the module

    verification = verify.verify_pipeline(pipeline, report)
    if not exact:
        return verification
    from glassflow_dagster.checks.exact.session import reconcile_in_own_session  # noqa: PLC0415

    return replace(verification, keys=reconcile_in_own_session(pipeline, report))


def read_ledger(pipeline: PipelineConfig) -> "LedgerTotals":
    """Read what became of all records of a pipeline, as its ledger in ClickHouse has it.

    The sums are those of the pipeline's current checkpoint: batches, offset ranges, rows, and `outcomes` with the
    number of records for each outcome. Raises `GlassflowError` when ClickHouse cannot be reached or has no ledger.
    """
    from clickhouse_connect.driver.exceptions import ClickHouseError  # noqa: PLC0415 - see the module

    from glassflow_dagster.stores.bookkeeping.totals import read_totals  # noqa: PLC0415
    from glassflow_dagster.stores.clickhouse.client import address, connect  # noqa: PLC0415
    from glassflow_dagster.stores.clickhouse.errors import explain  # noqa: PLC0415

    connection = pipeline.sink.connection_params
    try:
        with connect(connection) as client:
            return read_totals(client, connection.database, pipeline.pipeline_id)
    except (ClickHouseError, OSError) as error:
        raise GlassflowError(f"ClickHouse at {address(connection)}: {explain(error)}") from error
