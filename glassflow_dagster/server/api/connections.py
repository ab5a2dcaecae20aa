"""The servers that a request names: by `connection_params` as in a definition, or those of a pipeline.

Secrets of a pipeline are used and not shown, so that a page can look around without asking for them again.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from glassflow_dagster.definition.model.connections import ClickHouseConnection, KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.fields import Part
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.validation import to_problem
from glassflow_dagster.definition.variables import holds_variable
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import not_found, unprocessable
from glassflow_dagster.server.api.bodies import Body
from glassflow_dagster.server.api.catalog import Catalog
from glassflow_dagster.server.api.secrets import MASK

_P = TypeVar("_P", bound=Part)
_T = TypeVar("_T")
_INVALID = "the connection is invalid"


class OnServer(Body):
    """A server: `connection_params`, or the `pipeline_id` whose server it is."""

    connection_params: dict[str, Any] | None = None
    pipeline_id: str | None = None


class OnKafka(OnServer):
    """Kafka brokers."""

    source_id: str | None = Field(default=None, description="a source of the pipeline; by default the first one")

    def connection(self, catalog: Catalog) -> KafkaConnection:
        """Return the connection; raises `ApiError`."""
        if self.connection_params is not None:
            return parsed(KafkaConnection, self.connection_params)
        config = catalog.config(_required(self.pipeline_id))
        source_id = self.source_id or config.source.source_id
        found = next((each for each in config.sources if each.source_id == source_id), None)
        if found is None:
            raise not_found(f'pipeline "{self.pipeline_id}" has no source "{source_id}"')
        return found.connection_params


class OnClickHouse(OnServer):
    """A ClickHouse server."""

    def connection(self, catalog: Catalog) -> ClickHouseConnection:
        """Return the connection; raises `ApiError`."""
        if self.connection_params is not None:
            return parsed(ClickHouseConnection, {"database": "default", **self.connection_params})
        return catalog.config(_required(self.pipeline_id)).sink.connection_params


def parsed(model: type[_P], given: Mapping[str, Any], path: str = "connection_params") -> _P:
    """Return a connection that a client has sent; raises `ApiError`."""
    problems = [
        Problem(f"{path}.{key}", "no secret is stored here; send the secret itself, or the pipeline_id")
        if value == MASK
        else Problem(f"{path}.{key}", "refers to the server's variables or files; send the value itself")
        for key, value in _texts(given)
        if value == MASK or holds_variable(value)
    ]
    if problems:
        raise unprocessable(_INVALID, problems=problems)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        found = [to_problem(each) for each in error.errors()]
        raise unprocessable(_INVALID, problems=[Problem(f"{path}.{each.path}", each.text) for each in found]) from None


def asked(work: Callable[[], _T]) -> _T:
    """Return what a server that the request names answers; raises `ApiError` where it does not."""
    try:
        return work()
    except GlassflowError as error:
        raise unprocessable(str(error), str(error)) from None


def _required(pipeline_id: str | None) -> str:
    if pipeline_id is None:
        raise unprocessable(_INVALID, problems=[Problem("connection_params", "is missing; add it, or pipeline_id")])
    return pipeline_id


def _texts(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Return path and text of all texts in a value."""
    if isinstance(value, dict):
        return [each for key, inner in value.items() for each in _texts(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [each for index, inner in enumerate(value) for each in _texts(inner, f"{path}[{index}]")]
    return [(path, value)] if isinstance(value, str) else []


def registry_of(given: Mapping[str, Any] | None) -> SchemaRegistry | None:
    """Return the schema registry that a client has sent, None for none; raises `ApiError`."""
    return None if given is None else parsed(SchemaRegistry, given, "schema_registry")
