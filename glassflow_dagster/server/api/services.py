"""What the routes work with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.server.api.audit import AuditLog
from glassflow_dagster.server.api.catalog import Catalog
from glassflow_dagster.server.api.evaluation_session import EvaluationSession
from glassflow_dagster.server.api.files import DefinitionFiles
from glassflow_dagster.server.api.operations import Operations
from glassflow_dagster.server.api.pipeline_changes import Pipelines
from glassflow_dagster.server.api.replay_requests import ReplayRequests
from glassflow_dagster.server.api.reprocessing import Reprocessing
from glassflow_dagster.server.api.slow import SlowWork


@dataclass(frozen=True)
class Services:
    """The parts of the API, for one folder of definitions and one of state."""

    catalog: Catalog
    pipelines: Pipelines
    audit: AuditLog
    session: EvaluationSession
    replays: ReplayRequests
    # A server that does not answer holds a thread for up to two minutes.
    slow: SlowWork = field(default_factory=lambda: SlowWork(16))
    # They wait for each other, and must not hold up those that wait for servers.
    evaluations: SlowWork = field(default_factory=lambda: SlowWork(2))

    @classmethod
    def of(cls, folder: Path, state: Path, runner: StreamRunner, report: Callable[[str], None]) -> "Services":
        """Return the services of a folder; nothing is read or written yet. runner: with the same folder of state."""
        files = DefinitionFiles(folder)
        catalog = Catalog(files, state, Operations(files.private / "operations", report), runner)
        audit = AuditLog(files.private / "audit.jsonl")
        replays = ReplayRequests(files.private / "replays", Reprocessing(catalog, audit))
        return cls(catalog, Pipelines(catalog, report), audit, EvaluationSession(report), replays)


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]
