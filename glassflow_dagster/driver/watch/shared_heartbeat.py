"""Shows a driver to all hosts, and lets them stop it: heartbeats to ClickHouse, stop requests from there.

It also finds out while no batch runs that a newer driver has taken the pipeline over.
"""

import threading
from contextlib import suppress

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.control.heartbeat import Heartbeat
from glassflow_dagster.control.wanted import is_wanted, unwant
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.signals import StopRequest
from glassflow_dagster.driver.start.open_checkpoint import OpenCheckpoint
from glassflow_dagster.errors import Fenced, GlassflowError
from glassflow_dagster.stores.bookkeeping.drivers import insert_report
from glassflow_dagster.stores.bookkeeping.stop_requests import stop_requester
from glassflow_dagster.stores.clickhouse.client import connect

# A round costs two small queries and an insert, 20 ms of CPU with the server's. It is also how long a stop from another
# host may wait.
INTERVAL = 5.0  # seconds
# How long the end of a driver waits for ClickHouse to take its last heartbeat: without it, other hosts see it as stale.
_END_SECONDS = 5.0


class SharedHeartbeat:
    """The thread that shares one driver's heartbeat. `fenced`: the error to end with, once a newer driver is there."""

    def __init__(self, run: RunContext, stop: StopRequest) -> None:
        self._run = run
        self._stop = stop
        self._opened: OpenCheckpoint | None = None
        self._client: Client | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="shared heartbeat", daemon=True)
        self.fenced: Fenced | None = None

    def follow(self, opened: OpenCheckpoint) -> None:
        """Share the heartbeat of the driver that has opened this checkpoint from now on, until the heartbeat ends."""
        self._opened = opened
        if not self._thread.is_alive():
            self._run.heartbeat.at_end(self._end)
            self._thread.start()

    def _loop(self) -> None:
        """Share, and look for requests, every `INTERVAL` until the end; while ClickHouse is away nobody can see it."""
        while True:
            opened = self._opened
            assert opened is not None
            with suppress(GlassflowError, ClickHouseError, OSError):
                self._share(opened, self._run.heartbeat.current(), is_last=False)
                self._look(opened)
            if self._ending.wait(INTERVAL):
                return

    def _share(self, opened: OpenCheckpoint, beat: Heartbeat, *, is_last: bool) -> None:
        """Insert a heartbeat; raises what `connect` and `insert_report` raise."""
        self._client = self._client or connect(self._run.config.sink.connection_params)
        folder = self._run.folder
        insert_report(
            self._client, opened.epoch, str(folder), beat.model_dump_json(), wanted=is_wanted(folder), is_last=is_last
        )

    def _look(self, opened: OpenCheckpoint) -> None:
        """Ask the driver to stop where somebody requests it; note that it is fenced."""
        assert self._client
        epoch = opened.epoch
        if not self._stop.asked and (
            host := stop_requester(self._client, epoch.database, epoch.pipeline_id, epoch.number)
        ):
            self._run.report(f"asked to stop from host {host}")
            # Before the driver ends, so that nothing here takes its end for a failure.
            unwant(self._run.folder)
            self._stop.asked = True
        try:
            epoch.require_newest(self._client)
            opened.claim.require_newest_cached()
        except Fenced as error:
            self.fenced = error

    def _end(self, last: Heartbeat) -> None:
        """End the thread, and insert the last heartbeat, for a few seconds at most."""
        self._ending.set()

        def insert() -> None:
            opened = self._opened
            assert opened is not None
            self._thread.join()
            with suppress(GlassflowError, ClickHouseError, OSError):
                self._share(opened, last, is_last=True)

        # A daemon, which a server that does not answer cannot keep from ending with the process.
        last_insert = threading.Thread(target=insert, name="last heartbeat", daemon=True)
        last_insert.start()
        last_insert.join(_END_SECONDS)
