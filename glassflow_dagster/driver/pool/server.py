"""The process of a pool: starts the JVM, attaches drivers to it, and ends when it has had no driver for a while.

`control/pool_launch.py` starts it as `python -m glassflow_dagster.driver.pool.server`. It writes to `pool.log` in its
folder.
"""

import argparse
import hmac
import os
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from glassflow_dagster.control.lock import AlreadyRunning, PipelineLock
from glassflow_dagster.control.log import DriverLog
from glassflow_dagster.control.log_file import RotatingStderr
from glassflow_dagster.control.pool_endpoint import (
    CLOSE_SECONDS,
    Endpoint,
    Reply,
    Request,
    receive_line,
    remove_endpoint,
    send_line,
    write_endpoint,
)
from glassflow_dagster.driver.jvm import JVM_SILENCE, jvm_pid, launching_jvm, opened_session
from glassflow_dagster.driver.pool.crashes import Member, Members, PoolBroken
from glassflow_dagster.driver.signals import StopRequest, stop_signals
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.spark.without_pandas import leave_out_testing

# With fair scheduling a pipeline with a backlog does not make the others wait for its tasks.
FAIR = {"spark.scheduler.mode": "FAIR"}
# After its last driver. A pipeline that is restarted, and the next one of a list that is started, find the JVM running.
IDLE_SECONDS = 60.0
# A driver sends its request at once.
_REQUEST_SECONDS = 10.0
# The end of the pool's last process: Spark's context, and all its processes.
_LAST_SECONDS = 60.0
_POLL_SECONDS = 1.0


@dataclass
class Attachments:
    """The drivers that are attached to the pool's JVM. members: those of them that use it."""

    spark: SparkSession
    token: str
    log: DriverLog
    members: Members
    # Why the pool cannot go on; empty while it can.
    broken: str = ""
    # Whether the pool takes no drivers any more.
    is_ending: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # By pipeline; each is set when the session of its driver is closed.
    attached: dict[str, threading.Event] = field(default_factory=dict)

    @property
    def pipelines(self) -> list[str]:
        """Return the pipelines whose drivers are attached, sorted."""
        with self._lock:
            return sorted(self.attached)

    def end_if_idle(self) -> bool:
        """Take no drivers any more, unless one is attached; return whether the pool ends."""
        with self._lock:
            self.is_ending = not self.attached
            return self.is_ending

    def serve(self, connection: socket.socket) -> None:
        """Answer a request; for a driver, keep its session until the connection closes."""
        with connection:
            try:
                self._answer(connection)
            except OSError as error:
                # The driver has ended before it got its answer.
                self.log(f"a request was not answered: {error}")
            except (Py4JError, GlassflowError) as error:
                self.break_off(error)

    def break_off(self, error: Exception) -> None:
        """Note why the pool cannot go on, unless that is known."""
        self.broken = self.broken or str(error) or type(error).__name__

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_SECONDS)
        request = receive_line(connection, Request)
        if request is None or not hmac.compare_digest(request.token, self.token):
            send_line(connection, Reply(error="the request has not the pool's token"))
        elif request.pipeline is None:
            send_line(connection, Reply(pipelines=self.pipelines))
        else:
            self._attach(connection, Member(request.pipeline, Path(request.checkpoint)))

    def _attach(self, connection: socket.socket, member: Member) -> None:
        """Open a session for a driver, and close it when the connection closes."""
        closed = self._claim(member.pipeline)
        if closed is None:
            send_line(connection, Reply(is_ending=True))
            return
        try:
            self._let_in(connection, member)
        except (Py4JError, GlassflowError) as error:
            # Before the next driver of the pipeline is let in.
            self.break_off(error)
            raise
        finally:
            with self._lock:
                self.attached.pop(member.pipeline, None)
            closed.set()

    def _let_in(self, connection: socket.socket, member: Member) -> None:
        """Serve a driver until its connection closes, unless it is held back or the pool ends."""
        if reason := self.members.why_held(member):
            self.log(reason)
            send_line(connection, Reply(error=reason))
            return
        self.members.await_turn(member, is_over=lambda: bool(self.broken))
        if self.broken:
            send_line(connection, Reply(is_ending=True))
            return
        session = _Session.opened(self.spark)
        try:
            with self.members.using_jvm(member), session:
                self.log(f"{member.pipeline}: attached")
                send_line(connection, session.reply)
                connection.settimeout(None)
                # The driver sends nothing more.
                while connection.recv(1):
                    pass
        finally:
            self.log(f"{member.pipeline}: detached")

    def _claim(self, pipeline: str) -> threading.Event | None:
        """Wait until an earlier driver of the pipeline is detached; return the event to set when this one is.

        None where the pool ends.
        """
        closed = threading.Event()
        while True:
            with self._lock:
                if self.is_ending or self.broken:
                    return None
                earlier = self.attached.setdefault(pipeline, closed)
            if earlier is closed:
                return closed
            # Only one driver of a pipeline runs at once (its lock): the earlier one has ended, or will in this moment.
            # Its session is closed within `CLOSE_SECONDS`, or the pool is broken.
            if not earlier.wait(2 * CLOSE_SECONDS):
                raise PoolBroken(f"{pipeline}: its last driver is still attached")


class _Session:
    """A session of the JVM with a server of its own, which calls back one driver: `with _Session.opened(spark)`."""

    def __init__(self, spark: SparkSession) -> None:
        self._id = str(uuid.uuid4())
        self._spark = spark
        self._sessions: Any = java(spark).glassflow.SharedSessions
        # py4j's server, as each has one address for callbacks.
        server: Any = java(spark).org.apache.spark.api.python.Py4JServer
        self._server = server(_context(spark).conf())

    @classmethod
    def opened(cls, spark: SparkSession) -> Self:
        """Return a new session; raises `PoolBroken` where the JVM has ended."""
        with _jvm_answers():
            session = cls(spark)
            session._sessions.open(session._id, spark._jsparkSession)
            session._server.start()
            return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the session's queries; raise `PoolBroken` where they do not end."""
        with _jvm_answers():
            # Calls to a driver that has ended, or that was stopped (SIGSTOP), fail now.
            self._server.shutdown()
            try:
                self._sessions.close(self._id, int(CLOSE_SECONDS * 1000))
            except Py4JJavaError as error:
                raise PoolBroken(f"the queries of a driver do not end: {error.java_exception}") from error

    @property
    def reply(self) -> Reply:
        """What the driver needs to use the session."""
        return Reply(session=self._id, port=self._server.getListeningPort(), secret=self._server.secret())


@contextmanager
def _jvm_answers() -> Iterator[None]:
    """Raise `PoolBroken` where the JVM does not answer in the block: it has ended."""
    try:
        yield
    except (Py4JNetworkError, OSError) as error:
        raise PoolBroken("Spark's JVM was killed, or ran out of memory") from error


def serve(folder: Path, settings: dict[str, str], log: DriverLog) -> None:
    """Run the pool of a folder until it is stopped, or has had no driver for `IDLE_SECONDS`.

    Raises `GlassflowError` when the JVM does not start or does not answer, and when a query does not end: all its
    processes are killed then, and its drivers start another pool.
    """
    with (
        _locked(folder) as lock,
        stop_signals() as stop,
        launching_jvm(f"glassflow pool {folder.name}", folder, {**FAIR, **settings}, lock, log) as launch,
        opened_session(launch, folder, lock) as spark,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        attachments = Attachments(spark, secrets.token_hex(32), log, Members(folder, log))
        pid, port = os.getpid(), listener.getsockname()[1]
        watch = _JvmWatch(spark)
        threading.Thread(target=_accept, args=(listener, attachments), name="accept", daemon=True).start()
        write_endpoint(folder, Endpoint(pid=pid, started=start_of(pid) or "", port=port, token=attachments.token))
        log(f"the pool {folder.name} is running")
        try:
            _wait(stop, attachments, watch)
        except PoolBroken as error:
            # Before the session is stopped, which would wait for the JVM.
            lock.end_started()
            attachments.members.note_crash(str(error))
            raise
        finally:
            remove_endpoint(folder)
    log("no driver is attached any more" if not stop.asked else "stopped")


@contextmanager
def _locked(folder: Path) -> Iterator[PipelineLock]:
    """Lock the folder for the block; wait for the pool's last process, which may still be ending."""
    with ExitStack() as stack:
        deadline = time.monotonic() + _LAST_SECONDS
        while True:
            try:
                lock = stack.enter_context(PipelineLock(folder))
                break
            except AlreadyRunning:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_SECONDS)
        yield lock


def _wait(stop: StopRequest, attachments: Attachments, watch: "_JvmWatch") -> None:
    """Wait until the pool is stopped or has had no driver for `IDLE_SECONDS`; raise `PoolBroken` if it cannot go on."""
    idle_since = time.monotonic()
    while not stop.asked and not (time.monotonic() - idle_since > IDLE_SECONDS and attachments.end_if_idle()):
        time.sleep(_POLL_SECONDS)
        if attachments.pipelines:
            idle_since = time.monotonic()
        if attachments.broken or watch.silence() > JVM_SILENCE:
            raise PoolBroken(attachments.broken or watch.reason)


class _JvmWatch:
    """Calls the JVM once a second, on a thread, and knows since when it has not answered."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = _context(spark)
        self._answered = time.monotonic()
        self._jvm = jvm_pid(spark)
        threading.Thread(target=self._loop, name="jvm", daemon=True).start()

    def silence(self) -> float:
        """Return for how many seconds the JVM has not answered."""
        return time.monotonic() - self._answered

    @property
    def reason(self) -> str:
        """Return why the pool cannot go on with this JVM."""
        return (
            f"Spark's JVM (pid {self._jvm}) has not answered for {self.silence():.0f} s: it has ended, was stopped "
            "(SIGSTOP), or the machine is out of memory"
        )

    def _loop(self) -> None:
        try:
            while not self._context.isStopped():
                self._answered = time.monotonic()
                time.sleep(_POLL_SECONDS)
        except (Py4JError, OSError):
            # It has ended, which the pool need not wait to see.
            self._answered -= JVM_SILENCE


def _context(spark: SparkSession) -> Any:
    """Return py4j's view of a session's SparkContext."""
    return spark.sparkContext._jsc.sc()  # pyspark has not all of it


def _accept(listener: socket.socket, attachments: Attachments) -> None:
    """Serve each connection on a thread, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if listener.fileno() >= 0:
                # Without it no driver can be attached.
                attachments.break_off(error)
            return
        threading.Thread(target=attachments.serve, args=(connection,), name="attachment", daemon=True).start()


def main(arguments: list[str] | None = None) -> int:
    """Run a pool as a process; return its exit code: 0 when it was stopped or not needed any more, 1 after an error."""
    parser = argparse.ArgumentParser(prog="glassflow_dagster.driver.pool.server")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--log-file", type=Path, required=True, help="the file that stdout and stderr are; rotated")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parsed = parser.parse_args(arguments)
    log = DriverLog(RotatingStderr(parsed.log_file).write_line, is_timed=True, takes_jvm_output=True)
    try:
        serve(parsed.folder, dict(pair.split("=", 1) for pair in parsed.conf), log)
    except GlassflowError as error:
        log.fail(str(error))
        return 1
    return 0


if __name__ == "__main__":
    leave_out_testing()
    sys.exit(main())
