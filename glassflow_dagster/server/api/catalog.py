"""What can be read of the pipelines of a folder: definitions, versions, statuses."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glassflow_dagster.control.heartbeat import is_alive
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import StreamStatus, stream_status
from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.shared_tables import Writer
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError, bad_request, invalid_definition, not_found
from glassflow_dagster.server.api.files import DefinitionFiles, Stored, Version, etag_of
from glassflow_dagster.server.api.operations import Operations
from glassflow_dagster.server.api.public_form import as_v3, public_form, transformation_type
from glassflow_dagster.server.api.resources import immutable_fields
from glassflow_dagster.server.api.states import OF_STREAM, Status


@dataclass(frozen=True)
class Catalog:
    """The pipelines of a folder.

    state: the folder of the drivers' heartbeats.
    operations: those in progress.
    """

    files: DefinitionFiles
    state: Path
    operations: Operations
    runner: StreamRunner
    _writers: dict[tuple[Path, str], Writer] = field(default_factory=dict)

    def stored(self, pipeline_id: str, missing: str = "") -> Stored:
        """Return a pipeline's file; raises `ApiError` where there is none. missing: the error's text."""
        found = self.files.find(pipeline_id)
        if found is None:
            text = f'pipeline with id "{pipeline_id}" does not exist'
            raise not_found(missing or text, pipeline_id=pipeline_id, error=text)
        return found

    def config(self, pipeline_id: str) -> PipelineConfig:
        """Return a pipeline's valid definition, with its secrets; raises `ApiError`."""
        return self.load(self.stored(pipeline_id))

    @staticmethod
    def load(stored: Stored) -> PipelineConfig:
        """Return the valid definition of a file, with its secrets; raises `ApiError`."""
        try:
            return load_pipeline(stored.file)
        except GlassflowError as error:
            raise invalid_definition(error, f"the definition of {stored.pipeline_id} is invalid") from None

    def writers(self) -> list[Writer]:
        """Return what the valid definitions of the folder write to; each version of a file is read once."""
        found = {}
        for stored in self.files.all():
            key = (stored.file, stored.etag)
            # An invalid one is not kept: a secret that is missing may come.
            with suppress(GlassflowError):
                # Clients know pipelines, not files.
                found[key] = self._writers.get(key) or replace(Writer.of(load_pipeline(stored.file)), file=None)
        # Only what is there: versions that are gone are forgotten.
        self._writers.clear()
        self._writers.update(found)
        return [*found.values()]

    def definition(self, pipeline_id: str) -> tuple[Stored, dict[str, Any]]:
        """Return a pipeline's file, and its definition as answers have it; raises `ApiError`."""
        stored = self.stored(pipeline_id)
        return stored, public_form(v3_of(stored.raw, stored.file))

    def entries(self) -> list[dict[str, Any]]:
        """Return GlassFlow's entry of each pipeline; one whose format or status is unreadable has `error`, too."""
        return [self._entry(stored) for stored in self.files.all()]

    def _entry(self, stored: Stored) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "pipeline_id": stored.pipeline_id, "name": _name(stored), "transformation_type": "",
            **self._times(stored), "status": Status.FAILED, "metadata": {"tags": []},
        }  # fmt: skip
        try:
            entry["status"] = self.status(stored.pipeline_id)
            definition = as_v3(stored.raw, stored.file)
        except GlassflowError as error:
            # One pipeline must not hide the others.
            return {**entry, "error": str(error)}
        tags = public_form(definition)["metadata"]
        return {**entry, "transformation_type": transformation_type(definition), "metadata": tags}

    def health(self, pipeline_id: str) -> dict[str, Any]:
        """Return a pipeline's status and times, and what its driver says."""
        stored, stream = self.stored(pipeline_id), self.stream(pipeline_id)
        message = self.operations.failure(pipeline_id) or stream.message
        return {
            "pipeline_id": pipeline_id, "pipeline_name": _name(stored), "overall_status": self.status(pipeline_id),
            **self._times(stored), "state": stream.state, "message": message, "wanted": stream.wanted,
        }  # fmt: skip

    def stream(self, pipeline_id: str) -> StreamStatus:
        """Return the stream's status, wherever its driver runs; without a valid definition, that of this host.

        Raises `GlassflowError` where the system that runs the driver does not answer.
        """
        here = stream_status(self.state, pipeline_id)
        if here.heartbeat and is_alive(here.heartbeat):
            return here
        try:
            config = self.config(pipeline_id)
        except ApiError:
            return here
        return self.runner.status(config)

    def status(self, pipeline_id: str) -> Status:
        """Return a pipeline's status: that of an operation in progress, else that of its driver."""
        running = self.operations.current(pipeline_id)
        if running:
            return running
        status = OF_STREAM[self.stream(pipeline_id).state]
        # A driver that ended before its first heartbeat has left only its failure.
        return Status.FAILED if status is Status.STOPPED and self.operations.failure(pipeline_id) else status

    def resources(self, pipeline_id: str) -> dict[str, Any]:
        """Return a pipeline's resources, and which of them cannot change; raises `ApiError`."""
        stored = self.stored(pipeline_id, f'resources for pipeline "{pipeline_id}" not found')
        definition = v3_of(stored.raw, stored.file)
        policy = {"immutable": list(immutable_fields(definition))}
        return {"pipeline_resources": definition.get("resources") or {}, "fields_policy": policy}

    def history(self, pipeline_id: str) -> list[dict[str, Any]]:
        """Return the versions of a definition, the newest first, which is the current one; raises `ApiError`."""
        return [
            {"version": each.number, "written_at": iso(each.written), "etag": etag_of(each.text)}
            for each in reversed(self._versions(pipeline_id))
        ]

    def version(self, pipeline_id: str, number: int) -> tuple[Version, dict[str, Any]]:
        """Return a version and its definition as answers have it; raises `ApiError`."""
        found = next((each for each in self._versions(pipeline_id) if each.number == number), None)
        if found is None:
            raise not_found(f'pipeline "{pipeline_id}" has no version {number}', pipeline_id=pipeline_id)
        return found, public_form(v3_of(parse_definition(found.file, found.text.decode()), found.file))

    def _versions(self, pipeline_id: str) -> list[Version]:
        """Return all versions; a current content that was written by hand is the last one."""
        stored = self.stored(pipeline_id)
        versions = self.files.versions(pipeline_id)
        last = versions[-1].number if versions else 0
        if versions and versions[-1].text == stored.text:
            return versions
        # Counted on from the last one: the first ones may have been removed.
        return [*versions, Version(last + 1, stored.file, stored.changed)]

    def _times(self, stored: Stored) -> dict[str, str]:
        versions = self.files.versions(stored.pipeline_id)
        created = versions[0].written if versions else stored.changed
        return {"created_at": iso(created), "updated_at": iso(stored.changed)}


def require_schema_versions(definition: Mapping[str, Any], selected: list[str]) -> None:
    """Raise `ApiError` where `?schema=SOURCE:VERSION` selects another version than the definition has."""
    sources = definition.get("sources")
    versions = {
        str(source.get("source_id")): str(source.get("schema_version") or "1")
        for source in (sources if isinstance(sources, list) else ())
        if isinstance(source, dict)
    }
    for text in selected:
        source_id, colon, version = (part.strip() for part in text.partition(":"))
        if not (source_id and colon and version):
            raise bad_request(f'invalid schema query parameter "{text}": expected sourceId:version', schema=selected)
        if versions.get(source_id) != version:
            raise bad_request("Invalid schema selection for this pipeline", schema=selected)


def v3_of(raw: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return a stored definition as v3; raises `ApiError` where its format is unreadable."""
    try:
        return as_v3(raw, file)
    except GlassflowError as error:
        raise invalid_definition(error, f"{file.name} is no definition") from None


def iso(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name(stored: Stored) -> str:
    return str(stored.raw.get("name") or "")
