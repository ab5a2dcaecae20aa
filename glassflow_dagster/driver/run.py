"""The driver: the process that runs one pipeline's query.

`run_pipeline` is what `glassflow-dagster run` does in the foreground, and what `python -m
glassflow_dagster.driver.run` does detached. Its parts that need the libraries of the servers are loaded while Spark's
JVM starts.
"""

import argparse
import sys
from pathlib import Path

from glassflow_dagster.control.heartbeat import pipeline_folder
from glassflow_dagster.control.lock import PipelineLock
from glassflow_dagster.control.log import DriverLog, LogFormat, log_format, log_of
from glassflow_dagster.control.log_file import RotatingStderr, write_to_stderr
from glassflow_dagster.control.sent_definition import FROM_STDIN, SentDefinition
from glassflow_dagster.control.state_folder import prepare_folder
from glassflow_dagster.control.wanted import unwant
from glassflow_dagster.definition.load import load_pipeline, report_rewriting
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.failures import disk_failures
from glassflow_dagster.driver.heartbeat_writer import write_heartbeats
from glassflow_dagster.driver.options import Report, RunOptions
from glassflow_dagster.driver.python_output import python_output
from glassflow_dagster.driver.signals import Stopped, stop_signals
from glassflow_dagster.driver.start.spark import starting_spark
from glassflow_dagster.errors import Fenced, GlassflowError
from glassflow_dagster.runtime.spark_properties import read_properties
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.spark.without_pandas import leave_out_pandas, leave_out_testing


def run_pipeline(config: PipelineConfig, options: RunOptions, report: Report) -> Totals:
    """Run a pipeline until it is stopped or has caught up; return the totals of the batches that this run committed.

    These are all 0 when it is stopped before its query runs. report: a `DriverLog`, or a function that takes a line of
    text. Raises `GlassflowError` when the run cannot start or continue: a server, a table, a topic, the disk, another
    driver.
    """
    log = log_of(report)
    folder = prepare_folder(options.state, config.pipeline_id)
    with (
        disk_failures(folder),
        PipelineLock(folder) as lock,
        write_heartbeats(folder, config, options.submission) as heartbeat,
        stop_signals() as stop,
    ):
        log.position = heartbeat.position
        try:
            with starting_spark(config, options, folder, lock, log) as spark_start:
                from glassflow_dagster.driver.context import RunContext
                from glassflow_dagster.driver.main_loop import run_to_end

                leave_out_pandas()
                return run_to_end(RunContext(config, options, folder, heartbeat, log), spark_start, stop)
        except Stopped:
            return Totals()


def main(arguments: list[str] | None = None) -> int:
    """Run a driver as a process; return its exit code: 0 when it was stopped or has caught up, 1 after an error.

    With --print-totals its stdout is the totals of the batches that it committed. With --log-file its stdout and stderr
    must be that file, opened to append; it rotates the file.
    """
    parsed = _parser().parse_args(arguments)
    write_line = RotatingStderr(parsed.log_file).write_line if parsed.log_file else write_to_stderr
    # Text that another process reads from a pipe is passed through as it always was.
    takes_jvm_output = parsed.log_file is not None or parsed.log_format is LogFormat.JSON
    log = DriverLog(write_line, parsed.log_format, is_timed=True, takes_jvm_output=takes_jvm_output)
    with python_output(log):
        try:
            return _run(parsed, log)
        except GlassflowError as error:
            log.fail(str(error))
            return 1


def drive(config: PipelineConfig, options: RunOptions, log: DriverLog) -> Totals:
    """Run a pipeline in a process of its own, as `run_pipeline` does; return the same.

    Where a newer driver has fenced this one off, the stream is no longer wanted here.
    """
    log.pipeline = config.pipeline_id
    report_rewriting(config, log.problem)
    leave_out_testing()
    try:
        return run_pipeline(config, options, log)
    except Fenced:
        # A newer driver runs the pipeline elsewhere: a restart of this one would stop it.
        unwant(pipeline_folder(options.state, config.pipeline_id))
        raise


def _run(parsed: argparse.Namespace, log: DriverLog) -> int:
    """Load the definition and run the pipeline; return 0 when it was stopped or has caught up.

    Raises `GlassflowError`.
    """
    options = RunOptions(
        state=parsed.state,
        until_caught_up=parsed.until_caught_up,
        create_table=parsed.create_table,
        timeout_seconds=parsed.timeout,
        spark=_spark_settings(parsed),
        pool=parsed.pool,
    )
    totals = drive(_load(parsed.definition), options, log)
    if parsed.print_totals:
        print(totals.model_dump_json(), flush=True)  # noqa: T201
    return 0


def _spark_settings(parsed: argparse.Namespace) -> dict[str, str]:
    """Return the Spark settings of the properties file and of --conf; raises `GlassflowError`."""
    try:
        of_file = read_properties(parsed.properties_file) if parsed.properties_file else {}
    except OSError as error:
        raise GlassflowError(f"{parsed.properties_file}: cannot be read ({error.strerror}); start it again") from None
    return {**of_file, **dict(pair.split("=", 1) for pair in parsed.conf)}


def _parser() -> argparse.ArgumentParser:
    """Return the parser of a driver's command line."""
    parser = argparse.ArgumentParser(prog="glassflow_dagster.driver.run")
    parser.add_argument("--definition", required=True, help="a file; - for a definition on standard input")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--create-table", action="store_true")
    parser.add_argument("--until-caught-up", action="store_true")
    parser.add_argument("--print-totals", action="store_true", help="on stdout, as JSON, for a caller that waits")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--properties-file", type=Path, help="further Spark settings; --conf takes precedence")
    parser.add_argument("--pool", help="in place of the definition's")
    # A default that is text is converted as an option is, so a wrong variable is an error, too.
    parser.add_argument("--log-format", type=LogFormat, default=log_format(), metavar="text|json")
    parser.add_argument("--log-file", type=Path, help="the file that stdout and stderr are; rotated")
    return parser


def _load(definition: str) -> PipelineConfig:
    """Load the definition that the command line names; raises `DefinitionError`."""
    if definition == FROM_STDIN:
        return SentDefinition.model_validate_json(sys.stdin.buffer.read()).load()
    return load_pipeline(Path(definition))


if __name__ == "__main__":
    sys.exit(main())
