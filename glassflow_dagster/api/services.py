"""What the routes work with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from glassflow_dagster.api.audit import AuditLog
from glassflow_dagster.api.catalog import Catalog
from glassflow_dagster.api.files import DefinitionFiles
from glassflow_dagster.api.operations import Operations
from glassflow_dagster.api.pipelines import Launch, Pipelines


@dataclass(frozen=True)
class Services:
    """The parts of the API, for one folder of definitions and one of state."""

    catalog: Catalog
    pipelines: Pipelines
    audit: AuditLog

    @classmethod
    def of(cls, folder: Path, state: Path, launch: Launch, report: Callable[[str], None]) -> "Services":
        """Return the services of a folder; nothing is read or written yet."""
        files = DefinitionFiles(folder)
        catalog = Catalog(files, state, Operations(report))
        return cls(catalog, Pipelines(catalog, launch, report), AuditLog(files.private / "audit.jsonl"))


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]
