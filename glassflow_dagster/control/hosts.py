"""Streams on whatever host their drivers run: this host's files first, then what the drivers report to ClickHouse.

A driver on another host is neither started nor killed from here. It is seen (its heartbeat in `glassflow_drivers`), it
is asked to stop (`glassflow_stop_requests`), and a driver that is started here takes over from it: ClickHouse's epochs
stop the older one.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from clickhouse_connect.driver.client import Client
from pydantic import ValidationError

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.heartbeat import STALE_AFTER, DriverState, Heartbeat, is_alive
from glassflow_dagster.control.launch import Action, ensure_driver
from glassflow_dagster.control.status import UP, StreamState, StreamStatus, stream_status
from glassflow_dagster.control.stop import STOP_TIMEOUT, Ending, stop_driver
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.drivers import DriverReport, newest_report
from glassflow_dagster.stores.bookkeeping.stop_requests import request_stop, stop_requester, stop_requests
from glassflow_dagster.stores.clickhouse.client import address, connect
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable

_POLL = 1.0  # seconds
# A server that does not answer is not asked again for so long: a sensor looks at many pipelines one after the other.
AWAY_SECONDS = 30.0
# A connection -> its client: it asks the server for all its settings when it connects.
_clients: dict[tuple[str, str], Client] = {}
# A server's address -> when it may be asked again (clock of `time.monotonic`).
_ask_again: dict[str, float] = {}


class _AskedTooSoon(ClickHouseUnreachable):
    """A server that did not answer a moment ago is not asked again yet."""


def status(state: Path, config: PipelineConfig) -> StreamStatus:
    """Return a stream's status: of this host's driver if it runs, else of the newest driver that ClickHouse knows.

    state: the folder of all pipelines' state on this host. Where ClickHouse does not answer, the status is that of this
    host, whose message says so. Raises `GlassflowError` where this host's files cannot be read.
    """
    here = stream_status(state, config.pipeline_id)
    if here.state is StreamState.STARTING or (here.heartbeat and is_alive(here.heartbeat)):
        return here
    try:
        with _answering_client(config) as client:
            return _newest(client, config, here, _report_of(client, config))
    except _AskedTooSoon:
        return _without_others(here, "ClickHouse did not answer a moment ago")
    except ClickHouseUnreachable:
        return _without_others(here, "ClickHouse does not answer")
    except GlassflowError as error:
        return _without_others(here, str(error))


def stop(
    state: Path, config: PipelineConfig, timeout: float = STOP_TIMEOUT, report: Callable[[str], None] = lambda _: None
) -> Ending:
    """Stop a stream's driver after its batch, wherever it runs; the stream is not wanted any more.

    A driver of this host is killed after `timeout` seconds. Where ClickHouse does not answer, drivers of other hosts
    are not known, which is reported. Raises `GlassflowError` when one of another host has not ended in time.
    """
    ending = stop_driver(state, config.pipeline_id, timeout)
    if ending is not Ending.NOT_RUNNING:
        return ending
    here = stream_status(state, config.pipeline_id)
    try:
        with _client(config) as client:
            report_there = _report_of(client, config)
            if report_there is None:
                return Ending.NOT_RUNNING
            if _heartbeat_of(report_there) is None:
                return _stop_other_version(client, config, report_there)
            if not may_run(_newest(client, config, here, report_there)):
                # A cluster may be about to start it again, or the host that has started it.
                _request_stop(client, config, report_there)
                return Ending.NOT_RUNNING
            return _stop_there(client, config, report_there, timeout)
    except ClickHouseUnreachable as error:
        report(f"{config.pipeline_id}: whether it runs on another host is not known: {error}")
        return Ending.NOT_RUNNING


@dataclass(frozen=True)
class Shared:
    """What ClickHouse knows of a pipeline's drivers.

    status: of the newest one, or of this host's if that is newer.
    epoch: of the newest one; 0 where there is none.
    requests: to stop them.
    is_stopped: the newest driver is asked to stop.
    """

    status: StreamStatus
    epoch: int
    requests: int
    is_stopped: bool


def look(state: Path, config: PipelineConfig) -> Shared:
    """Return what ClickHouse knows; raises `GlassflowError`, at once where it did not answer a moment ago."""
    here = stream_status(state, config.pipeline_id)
    with _answering_client(config) as client:
        report = _report_of(client, config)
        asked = stop_requests(client, config.sink.connection_params.database, config.pipeline_id)
        newest = _newest(client, config, here, report)
    epoch = report.epoch if report else 0
    return Shared(newest, epoch, asked.count, is_stopped=asked.count > 0 and asked.epoch >= epoch)


def tell_stopped(config: PipelineConfig) -> None:
    """Ask the newest driver to stop, and let all hosts know that the stream is not wanted; do not wait for its end.

    Raises `GlassflowError`.
    """
    with _client(config) as client:
        if report := _report_of(client, config):
            _request_stop(client, config, report)


def runs(status: StreamStatus) -> bool:
    """Return whether a stream's driver runs, whether it makes progress or not."""
    return status.state in UP or status.state is StreamState.STALLED


def may_run(status: StreamStatus) -> bool:
    """Return whether this is the driver of another host, and may still run."""
    return bool(status.host) and (runs(status) or status.state is StreamState.STALE)


def ensure_running(deployment: Deployment, report: Callable[[str], None]) -> tuple[StreamStatus, Action]:
    """Make sure that a healthy driver runs the current definition, here or on another host; see `ensure_driver`.

    A healthy driver of another host with this definition is left alone. Otherwise one is started here, which takes
    over.
    """
    there = status(deployment.state, deployment.config)
    if there.host and there.heartbeat and there.state in UP:
        if there.heartbeat.fingerprint == deployment.config.fingerprint:
            return there, Action.HEALTH_CHECKED
        report(f"{there.pipeline_id}: runs with another definition on host {there.host}; this host takes it over")
    return ensure_driver(deployment, report)


def _without_others(here: StreamStatus, reason: str) -> StreamStatus:
    """Return this host's status with a message that drivers of other hosts may exist."""
    return replace(here, message=f"{here.message}; drivers on other hosts are not known: {reason}")


def _report_of(client: Client, config: PipelineConfig) -> DriverReport | None:
    """Return what the newest driver of a pipeline has reported; raises what `newest_report` raises."""
    return newest_report(client, config.sink.connection_params.database, config.pipeline_id)


def _request_stop(client: Client, config: PipelineConfig, report: DriverReport) -> None:
    """Ask the driver that has reported, and older ones, to stop; raises what `request_stop` raises."""
    request_stop(client, config.sink.connection_params.database, config.pipeline_id, report.epoch)


def _heartbeat_of(report: DriverReport) -> Heartbeat | None:
    """Return a driver's heartbeat; None where it is of another version and cannot be read."""
    try:
        return Heartbeat.model_validate_json(report.heartbeat)
    except ValidationError:
        return None


def _newest(client: Client, config: PipelineConfig, here: StreamStatus, report: DriverReport | None) -> StreamStatus:
    """Return the status of the driver that has reported, or of this host's if that is newer, or the only one."""
    if report is None:
        return here
    beat = _heartbeat_of(report)
    if beat is None:
        text = f"its driver on host {report.host} is of another version, whose heartbeat cannot be read"
        return replace(here, message=text)
    own = here.heartbeat
    # A driver of this host that has never had an epoch may still be newer than the one that ClickHouse knows.
    is_own = own is not None and (own.pid, own.process_started) == (beat.pid, beat.process_started)
    if is_own or (own is not None and own.updated_at > beat.updated_at and here.state is StreamState.FAILED):
        return here
    has_ended = beat.state in {DriverState.STOPPED, DriverState.FAILED}
    if report.host == socket.gethostname() and not has_ended and not is_alive(beat):
        # It ran here, with another state folder or with one that is gone.
        return _died(here, report, beat)
    database = config.sink.connection_params.database
    requested = stop_requester(client, database, config.pipeline_id, report.epoch) is not None
    state, message = _state_of(report, beat)
    return StreamStatus(
        config.pipeline_id,
        state,
        message,
        beat,
        Path(report.folder),
        wanted=report.wanted and not requested,
        host=report.host,
    )


def _died(here: StreamStatus, report: DriverReport, beat: Heartbeat) -> StreamStatus:
    """Return the status of a driver whose process is not there any more, though it ran on this host."""
    message = (
        f"driver process {beat.pid}, with its state in {report.folder}, died without an error message; no data is "
        "lost; the next start repeats the open batch"
    )
    return replace(here, state=StreamState.FAILED, message=message, heartbeat=beat, wanted=report.wanted)


def _state_of(report: DriverReport, beat: Heartbeat) -> tuple[StreamState, str]:
    """Return the state of a driver on another host, and a message for people."""
    where = f"on host {report.host}"
    if beat.state is DriverState.STOPPED:
        return StreamState.STOPPED, beat.message or f"stopped normally {where}"
    if beat.state is DriverState.FAILED:
        return StreamState.FAILED, f"{where}: {beat.message or 'the driver failed without an error message'}"
    if report.age > STALE_AFTER:
        return StreamState.STALE, (
            f"no heartbeat for {report.age:.0f} s (more than {STALE_AFTER:.0f} s) from the driver {where}; if that "
            "host is lost, start the pipeline on another one, which takes it over"
        )
    return StreamState(beat.state.value), f"{where}: {beat.message}" if beat.message else where


def _stop_other_version(client: Client, config: PipelineConfig, report: DriverReport) -> Ending:
    """Ask a driver to stop whose heartbeat cannot be read; raise `GlassflowError`, as it is not seen to end.

    One whose last heartbeat is old is taken for ended: of a driver that has ended it is kept for months.
    """
    if report.age > STALE_AFTER:
        return Ending.NOT_RUNNING
    _request_stop(client, config, report)
    raise GlassflowError(
        f"{config.pipeline_id}: the driver on host {report.host} is of another version, whose heartbeat cannot be "
        "read. It is asked to stop after its batch; whether it has, that version's `status` says on its host"
    )


def _stop_there(client: Client, config: PipelineConfig, report: DriverReport, timeout: float) -> Ending:
    """Ask the driver that has reported to stop, and wait for its last heartbeat.

    Raises `GlassflowError` when it has not come after `timeout` seconds, or another driver has been started meanwhile.
    """
    _request_stop(client, config, report)
    deadline = time.monotonic() + timeout
    while True:
        current = _report_of(client, config) or report
        if current.epoch > report.epoch:
            raise GlassflowError(
                f"{config.pipeline_id}: was started again meanwhile, on host {current.host}; stop it again"
            )
        beat = _heartbeat_of(current)
        if beat and beat.state in {DriverState.STOPPED, DriverState.FAILED}:
            return Ending.STOPPED
        if time.monotonic() > deadline:
            process_there = f" (pid {beat.pid} there)" if beat else ""
            raise GlassflowError(
                f"{config.pipeline_id}: the driver on host {report.host}{process_there} has not stopped within "
                f"{timeout:.0f} s; its last heartbeat is {current.age:.0f} s old. It stops as soon as it reads the "
                "request, also if a cluster starts it again elsewhere; if that host is lost, nothing is left to do"
            )
        time.sleep(_POLL)


@contextmanager
def _answering_client(config: PipelineConfig) -> Iterator[Client]:
    """Return a client as `_client` does; raise `ClickHouseUnreachable` at once where it did not answer a moment ago."""
    where = address(config.sink.connection_params)
    if time.monotonic() < _ask_again.get(where, 0.0):
        raise _AskedTooSoon(f"ClickHouse at {where} did not answer a moment ago; try again when it does")
    try:
        with _client(config) as client:
            yield client
    except ClickHouseUnreachable:
        _ask_again[where] = time.monotonic() + AWAY_SECONDS
        raise


@contextmanager
def _client(config: PipelineConfig) -> Iterator[Client]:
    """Return a client of the pipeline's ClickHouse, which is kept for the next question unless the block fails.

    Raises what `connect` raises.
    """
    connection = config.sink.connection_params
    key = (repr(connection), connection.password.get_secret_value())
    client = _clients.pop(key, None) or connect(connection)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _clients[key] = client
