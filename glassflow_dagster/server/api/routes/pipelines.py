"""The requests on pipelines: definitions, versions, starts and stops."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from glassflow_dagster.definition.problems import BUILT
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import invalid_definition
from glassflow_dagster.server.api.bodies import (
    DEFINITION_SCHEMA,
    NewMetadata,
    NewName,
    NewResources,
    RollbackTo,
    definition_body,
)
from glassflow_dagster.server.api.catalog import require_schema_versions
from glassflow_dagster.server.api.metrics_summary import metrics_summary
from glassflow_dagster.server.api.public_form import as_v3
from glassflow_dagster.server.api.routes.audited import AuditedRoute
from glassflow_dagster.server.api.services import Given

Sent = Annotated[dict[str, Any], Depends(definition_body)]
IfMatch = Annotated[str | None, Header()]
_Answer = dict[str, Any]

reading = APIRouter(prefix="/api/v1/pipeline", tags=["pipelines"])
changing = APIRouter(prefix="/api/v1/pipeline", tags=["pipelines"], route_class=AuditedRoute)


@reading.get("")
def list_pipelines(services: Given) -> list[_Answer]:
    """List all pipelines."""
    return services.catalog.entries()


@reading.get("/{pipeline_id}")
def get_pipeline(
    pipeline_id: str, services: Given, response: Response, schema: Annotated[list[str] | None, Query()] = None
) -> _Answer:
    """Get the definition of a pipeline, without its secrets. The header ETag is for If-Match."""
    stored, definition = services.catalog.definition(pipeline_id)
    require_schema_versions(definition, schema or [])
    response.headers["etag"] = stored.etag
    return definition


@reading.get("/{pipeline_id}/health")
def get_health(pipeline_id: str, services: Given) -> _Answer:
    """Get the status of a pipeline."""
    return services.catalog.health(pipeline_id)


@reading.get("/{pipeline_id}/metrics")
def get_metrics(pipeline_id: str, services: Given) -> _Answer:
    """Get a pipeline's rates, lag, latency and numbers of records."""
    return metrics_summary(services.catalog, pipeline_id)


@reading.get("/{pipeline_id}/resources")
def get_resources(pipeline_id: str, services: Given) -> _Answer:
    """Get a pipeline's resources, and which of them cannot change."""
    return services.catalog.resources(pipeline_id)


@reading.get("/{pipeline_id}/resources/validation")
def get_resources_validation(pipeline_id: str, services: Given) -> _Answer:
    """Get which resources of a pipeline cannot change."""
    return {"fields_policy": services.catalog.resources(pipeline_id)["fields_policy"]}


@reading.get("/{pipeline_id}/history")
def get_history(pipeline_id: str, services: Given) -> list[_Answer]:
    """List the versions of a definition, the newest first."""
    return services.catalog.history(pipeline_id)


@reading.get("/{pipeline_id}/history/{version}")
def get_version(pipeline_id: str, version: int, services: Given) -> _Answer:
    """Get a version of a definition, without its secrets."""
    return services.catalog.version(pipeline_id, version)[1]


@reading.post("/migrate-preview", openapi_extra=DEFINITION_SCHEMA)
def migrate(sent: Sent) -> _Answer:
    """Convert a definition of an older format to v3; nothing is written."""
    try:
        return as_v3(sent, Path(BUILT))
    except GlassflowError as error:
        raise invalid_definition(error, "failed to convert v2 pipeline to v3") from None


@reading.post("/validate", openapi_extra=DEFINITION_SCHEMA)
def validate(sent: Sent, services: Given) -> _Answer:
    """Check a definition; nothing is written. An invalid one is answered with 422 and every mistake in it."""
    return {"valid": True, "warnings": services.pipelines.validate(sent)}


@changing.post("", openapi_extra=DEFINITION_SCHEMA)
def create_pipeline(sent: Sent, services: Given, request: Request, response: Response) -> _Answer:
    """Create a pipeline and start it."""
    request.state.audit = {"pipeline_id": str(sent.get("pipeline_id"))[:200]}
    response.headers["etag"] = services.pipelines.create(sent).etag
    return {}


@changing.post("/{pipeline_id}/edit", openapi_extra=DEFINITION_SCHEMA)
def edit_pipeline(
    pipeline_id: str, sent: Sent, services: Given, response: Response, if_match: IfMatch = None
) -> _Answer:
    """Replace the definition of a stopped pipeline and resume it. `dropped_keys` are those that were there before."""
    stored, dropped = services.pipelines.edit(pipeline_id, sent, if_match)
    response.headers["etag"] = stored.etag
    return {"dropped_keys": dropped} if dropped else {}


@changing.post("/{pipeline_id}/rollback")
def rollback_pipeline(
    pipeline_id: str, to: RollbackTo, services: Given, response: Response, if_match: IfMatch = None
) -> _Answer:
    """Make an earlier version of a stopped pipeline the current one and resume it."""
    response.headers["etag"] = services.pipelines.rollback(pipeline_id, to.version, if_match).etag
    return {}


@changing.patch("/{pipeline_id}")
def rename_pipeline(
    pipeline_id: str, new: NewName, services: Given, response: Response, if_match: IfMatch = None
) -> _Answer:
    """Change the name of a pipeline, which may run."""
    response.headers["etag"] = services.pipelines.change(pipeline_id, {"name": new.name}, if_match).etag
    return {}


@changing.patch("/{pipeline_id}/metadata")
def change_metadata(
    pipeline_id: str, new: NewMetadata, services: Given, response: Response, if_match: IfMatch = None
) -> _Answer:
    """Change the labels of a pipeline, which may run."""
    changes = {"metadata": new.metadata.model_dump()}
    response.headers["etag"] = services.pipelines.change(pipeline_id, changes, if_match).etag
    return {}


@changing.put("/{pipeline_id}/resources")
def change_resources(
    pipeline_id: str, new: NewResources, services: Given, response: Response, if_match: IfMatch = None
) -> _Answer:
    """Change the resources of a stopped pipeline, which stays stopped."""
    stored = services.pipelines.change_resources(pipeline_id, new.pipeline_resources, if_match)
    response.headers["etag"] = stored.etag
    return services.catalog.resources(pipeline_id)


@changing.delete("/{pipeline_id}")
def delete_pipeline(pipeline_id: str, services: Given, if_match: IfMatch = None) -> _Answer:
    """Delete the definition of a stopped pipeline. Its earlier versions, checkpoint and rows stay."""
    services.pipelines.delete(pipeline_id, if_match)
    return {}


@changing.post("/{pipeline_id}/stop")
def stop_pipeline(pipeline_id: str, services: Given) -> _Answer:
    """Stop a pipeline after its current batch."""
    services.pipelines.stop(pipeline_id)
    return {}


@changing.post("/{pipeline_id}/terminate")
def terminate_pipeline(pipeline_id: str, services: Given) -> _Answer:
    """Kill a pipeline's driver; the next start repeats its batch, so that no row is lost or duplicated."""
    services.pipelines.terminate(pipeline_id)
    return {}


@changing.post("/{pipeline_id}/resume")
def resume_pipeline(pipeline_id: str, services: Given) -> _Answer:
    """Start a stopped pipeline on its checkpoint."""
    services.pipelines.resume(pipeline_id)
    return {}
