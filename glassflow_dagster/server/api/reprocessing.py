"""Sends the dead letters of a pipeline to it again, in a thread: they may be many."""

import logging
import time

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.audit import AuditLog
from glassflow_dagster.server.api.catalog import Catalog
from glassflow_dagster.stores.dead_letters.replay import ReplayFenced, replay
from glassflow_dagster.stores.kafka.replay_topic import REPLAY_PARTITION
from glassflow_dagster.stores.kafka.topics import offsets

_log = logging.getLogger(__name__)

# A replay that has sent nothing for so long has ended; a transaction of one takes well under a second.
QUIET_SECONDS = 5.0
# How often a replay is begun again that another one has ended, such as one of the command line.
_TIMES_FENCED = 10
_POLL_SECONDS = 0.5


class Reprocessing:
    """Does what `begin_reprocess` has accepted; what became of it goes to the audit log."""

    def __init__(self, catalog: Catalog, audit: AuditLog) -> None:
        self._catalog, self._audit = catalog, audit

    def __call__(self, pipeline_id: str, request_id: str, conditions: list[str]) -> None:
        """Replay dead letters. conditions: together they select them."""
        outcome: list[str] = []
        try:
            for condition in conditions:
                outcome += _replay(self._catalog.config(pipeline_id), condition)
        except (ApiError, GlassflowError) as error:
            outcome.append(str(error))
            self._catalog.operations.report(f"{pipeline_id}: reprocess: {error}")
        except Exception as error:  # noqa: BLE001 - it would end only this thread
            _log.exception("%s: reprocess", pipeline_id)
            outcome.append(type(error).__name__)
        self._audit.end(request_id, pipeline_id=pipeline_id, outcome=outcome or ["no dead letter waits"])


def _replay(config: PipelineConfig, condition: str) -> list[str]:
    """Replay dead letters, again when another replay has ended this one; return the lines of the result."""
    for _ in range(_TIMES_FENCED):
        try:
            return [*replay(config, condition, lambda _: None).lines(config.dead_letters.max_attempts)]
        except ReplayFenced:
            _await_quiet(config)
    return [*replay(config, condition, lambda _: None).lines(config.dead_letters.max_attempts)]


def _await_quiet(config: PipelineConfig) -> None:
    """Wait until nothing is sent to the replay topic for `QUIET_SECONDS`; to go on at once would end the other."""
    end, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        newest = offsets(config.source.connection_params, config.replay_topic)[REPLAY_PARTITION].high
        if newest != end:
            end, since = newest, time.monotonic()
        time.sleep(_POLL_SECONDS)
