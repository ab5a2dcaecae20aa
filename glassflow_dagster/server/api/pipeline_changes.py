"""What requests change: definitions, and which drivers run."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from glassflow_dagster.control.stop import POLL, STOP_TIMEOUT, Ending, stop_driver
from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.load import load_written, warnings
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import BUILT, Problem
from glassflow_dagster.definition.shared_tables import Writer, sharing_problems
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import (
    INVALID_DEFINITION,
    ApiError,
    bad_request,
    conflict,
    invalid_definition,
    unprocessable,
)
from glassflow_dagster.server.api.catalog import Catalog, v3_of
from glassflow_dagster.server.api.files import PRIVATE, Stored
from glassflow_dagster.server.api.operations import Operation
from glassflow_dagster.server.api.public_form import as_v3
from glassflow_dagster.server.api.resources import require_mutable
from glassflow_dagster.server.api.secrets import Protected, protect
from glassflow_dagster.server.api.states import AT_REST, Status, require_at_rest, require_transition

# As in the model.
_PIPELINE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,99}")


@dataclass(frozen=True)
class Pipelines:
    """Changes the pipelines of a catalog. report: gets what people should know of starts, one line each."""

    catalog: Catalog
    report: Callable[[str], None]

    def validate(self, sent: Mapping[str, Any]) -> list[str]:
        """Check a definition without writing it; return warnings. Raises `ApiError` with every mistake."""
        config = self.load_sent(sent)
        self.require_own_tables(config)
        return [*config.origin.rewriting_warnings, *warnings(config)]

    def load_sent(self, sent: Mapping[str, Any]) -> PipelineConfig:
        """Return a sent definition with its secrets, stored ones in the place of masks; raises `ApiError`."""
        pipeline_id = sent.get("pipeline_id")
        current = self.catalog.files.find(pipeline_id) if isinstance(pipeline_id, str) else None
        return self._checked(sent, current, 0)[1]

    def require_own_tables(self, config: PipelineConfig) -> None:
        """Raise `ApiError` for a table that another definition of the folder writes to, unless all say so."""
        writers = self.catalog.writers()
        current = next((writer for writer in writers if writer.pipeline_id == config.pipeline_id), None)
        if problems := sharing_problems(Writer.of(config), writers, current):
            raise unprocessable(INVALID_DEFINITION, problems=problems)

    def create(self, sent: Mapping[str, Any]) -> Stored:
        """Write a new definition and start its pipeline; raises `ApiError`."""
        pipeline_id = _require_id(sent)
        files = self.catalog.files
        with files.locked():
            current = files.find(pipeline_id)
            number = files.next_version(pipeline_id, current)
            protected, config = self._checked(sent, current, number)
            if current is not None:
                text = "pipeline with this ID already exists"
                raise conflict(text, pipeline_id=pipeline_id, error=text)
            if (files.folder / f"{pipeline_id}.yaml").exists():
                raise conflict(f"{pipeline_id}.yaml has no pipeline of this id; remove the file or choose another id")
            self.require_own_tables(config)
            stored = self._write(pipeline_id, number, protected, None)
            self._start(stored, Status.CREATED)
            return stored

    def edit(self, pipeline_id: str, sent: Mapping[str, Any], if_match: str | None) -> tuple[Stored, list[str]]:
        """Replace a definition and resume its pipeline; return the file, and the paths of keys that are gone."""
        if sent.get("pipeline_id") != pipeline_id:
            text = "pipeline ID in request body must match the route parameter"
            raise bad_request(text, route_id=pipeline_id, json_id=str(sent.get("pipeline_id") or ""))
        files = self.catalog.files
        with files.locked():
            current = self._at_rest(pipeline_id, if_match, f'no pipeline with id "{pipeline_id}" to edit')
            number = files.next_version(pipeline_id, current)
            protected, config = self._checked(sent, current, number)
            self.require_own_tables(config)
            gone = _key_paths(v3_of(current.raw, current.file)) - _key_paths(protected.definition)
            stored = self._write(pipeline_id, number, protected, current)
            self._start(stored, Status.RESUMING)
            return stored, sorted(gone)

    def rollback(self, pipeline_id: str, number: int, if_match: str | None) -> Stored:
        """Make an earlier version the current one, as a new version, and resume the pipeline; raises `ApiError`."""
        files = self.catalog.files
        with files.locked():
            current = self._at_rest(pipeline_id, if_match)
            version, _ = self.catalog.version(pipeline_id, number)
            text = version.text
            try:
                # Its secrets may have been deleted since, and its format may be one that is refused now.
                config = load_written(parse_definition(current.file, text.decode()), current.file)
            except GlassflowError as error:
                raise invalid_definition(error, f"version {number} cannot be used any more") from None
            self.require_own_tables(config)
            new = files.next_version(pipeline_id, current)
            stored = files.write_text(pipeline_id, new, text, current)
            self._start(stored, Status.RESUMING)
            return stored

    def change(self, pipeline_id: str, changes: Mapping[str, Any], if_match: str | None) -> Stored:
        """Replace top-level keys that do not concern the driver, such as `name`, while it may run."""
        with self.catalog.files.locked():
            current = self.catalog.stored(pipeline_id)
            require_match(current, if_match)
            return self._change(current, changes)

    def change_resources(self, pipeline_id: str, sent: Mapping[str, Any], if_match: str | None) -> Stored:
        """Replace `resources` of a stopped pipeline, which stays stopped; raises `ApiError`."""
        with self.catalog.files.locked():
            current = self._at_rest(
                pipeline_id, if_match, f'pipeline "{pipeline_id}" not found', status=HTTPStatus.CONFLICT
            )
            require_mutable(v3_of(current.raw, current.file), sent)
            return self._change(current, {"resources": sent})

    def delete(self, pipeline_id: str, if_match: str | None) -> None:
        """Remove the definition of a stopped pipeline, and its secrets. Versions, checkpoint and rows stay."""
        with self.catalog.files.locked():
            current = self.catalog.stored(pipeline_id)
            require_match(current, if_match)
            status = self.catalog.status(pipeline_id)
            if status not in AT_REST:
                text = f"pipeline can only be deleted if it's stopped or terminated, current status: {status}"
                raise bad_request(text, pipeline_id=pipeline_id, current_status=status)
            # A failed stream may still be wanted, and would be started again.
            self._stop_driver(pipeline_id, STOP_TIMEOUT)
            self.catalog.files.remove(current)
            self.catalog.operations.forget(pipeline_id)

    def stop(self, pipeline_id: str) -> None:
        """Begin to stop a pipeline after its current batch; raises `ApiError`."""
        self._end(pipeline_id, Status.STOPPING, "stop", STOP_TIMEOUT)

    def terminate(self, pipeline_id: str) -> None:
        """Begin to kill a pipeline's driver. Its batch is repeated at the next start: no row is lost or doubled."""
        self._end(pipeline_id, Status.TERMINATING, "terminate", 0.0)

    def resume(self, pipeline_id: str) -> None:
        """Begin to start a stopped pipeline on its checkpoint; raises `ApiError`."""
        with self.catalog.files.locked():
            stored = self.catalog.stored(pipeline_id, "no pipeline with given id to resume")
            require_transition(pipeline_id, self.catalog.status(pipeline_id), Status.RESUMING)
            self.catalog.load(stored)
            self._start(stored, Status.RESUMING)

    def _end(self, pipeline_id: str, status: Status, verb: str, timeout: float) -> None:
        with self.catalog.files.locked():
            self.catalog.stored(pipeline_id, f"no active pipeline with given id to {verb}")
            require_transition(pipeline_id, self.catalog.status(pipeline_id), status)
            starting = self.catalog.operations.newest(pipeline_id)
            work = partial(self._stop, pipeline_id, timeout, starting)
            self.catalog.operations.begin(pipeline_id, status, work)

    def _stop(self, pipeline_id: str, timeout: float, starting: Operation | None) -> None:
        """Stop the driver; one that is just being started has no heartbeat yet by which it can be found."""
        while True:
            ending = self._stop_driver(pipeline_id, timeout)
            if ending is not Ending.NOT_RUNNING or starting is None or not starting.is_in_progress():
                return
            time.sleep(POLL)

    def _stop_driver(self, pipeline_id: str, timeout: float) -> Ending:
        """Stop the driver, wherever it runs; without a valid definition, that of this host."""
        try:
            config = self.catalog.config(pipeline_id)
        except ApiError:
            return stop_driver(self.catalog.state, pipeline_id, timeout)
        return self.catalog.runner.stop(config, timeout)

    def _start(self, stored: Stored, status: Status) -> None:
        def start() -> None:
            self.catalog.runner.ensure_running(self.catalog.load(stored), self.report)

        self.catalog.operations.begin(stored.pipeline_id, status, start)

    def _at_rest(
        self, pipeline_id: str, if_match: str | None, missing: str = "", status: int = HTTPStatus.BAD_REQUEST
    ) -> Stored:
        """Return the file of a pipeline that can be edited; raises `ApiError`, with this status where it runs."""
        current = self.catalog.stored(pipeline_id, missing)
        require_match(current, if_match)
        require_at_rest(pipeline_id, self.catalog.status(pipeline_id), status)
        return current

    def _change(self, current: Stored, changes: Mapping[str, Any]) -> Stored:
        """Write the definition with other values of top-level keys; its secrets and references stay as they are."""
        number = self.catalog.files.next_version(current.pipeline_id, current)
        changed = {**v3_of(current.raw, current.file), **changes}
        protected, _ = self._checked(changed, current, number)
        return self._write(current.pipeline_id, number, protected, current)

    def _checked(
        self, sent: Mapping[str, Any], current: Stored | None, number: int
    ) -> tuple[Protected, PipelineConfig]:
        """Return a sent definition of any format as it is to be written, and loaded; raises `ApiError`."""
        files = self.catalog.files
        file = current.file if current else files.folder / f"{BUILT}.yaml"
        try:
            stored = v3_of(current.raw, current.file) if current else None
            pipeline_id = str(sent.get("pipeline_id"))
            protected = protect(as_v3(sent, file), stored, f"{PRIVATE}/secrets/{pipeline_id}", f"{number}.")
            if protected.problems:
                raise unprocessable(INVALID_DEFINITION, problems=protected.problems)
            return protected, load_written(protected.plain, file)
        except GlassflowError as error:
            raise invalid_definition(error) from None

    def _write(self, pipeline_id: str, number: int, protected: Protected, current: Stored | None) -> Stored:
        for name, value in protected.secrets.items():
            self.catalog.files.write_secret(pipeline_id, name, value)
        return self.catalog.files.write(pipeline_id, number, protected.definition, current)


def require_match(current: Stored, if_match: str | None) -> None:
    """Raise `ApiError` where a request is meant for another version of a definition."""
    if if_match is None or if_match.strip() == "*":
        return
    if current.etag not in {each.strip().removeprefix("W/") for each in if_match.split(",")}:
        raise ApiError(
            HTTPStatus.PRECONDITION_FAILED, "precondition_failed",
            f"the definition of {current.pipeline_id} has changed since; get it again and repeat the change",
            {"pipeline_id": current.pipeline_id, "etag": current.etag},
        )  # fmt: skip


def _require_id(sent: Mapping[str, Any]) -> str:
    """Return the id of a new pipeline; raises `ApiError` where it cannot be one."""
    pipeline_id = sent.get("pipeline_id")
    if pipeline_id is None:
        raise unprocessable(INVALID_DEFINITION, problems=[Problem("pipeline_id", "is missing; add it")])
    if not isinstance(pipeline_id, str) or not _PIPELINE_ID.fullmatch(pipeline_id):
        text = "5 to 100 letters, digits, '-' and '_', and a letter or digit first"
        raise bad_request("pipeline id is invalid", pipeline_id=str(pipeline_id)[:200], error=text)
    return pipeline_id


def _key_paths(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys of a definition; of lists without the index."""
    if isinstance(value, dict):
        inner = (_key_paths(each, f"{path}.{key}" if path else str(key)) for key, each in value.items())
        return {f"{path}.{key}" if path else str(key) for key in value}.union(*inner)
    if isinstance(value, list):
        return set().union(*(_key_paths(each, f"{path}[]") for each in value))
    return set()
