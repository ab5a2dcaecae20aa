"""The requests that try something: filters, transforms, a definition on samples. Nothing is written."""

import json
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.server.api.api_error import not_found
from glassflow_dagster.server.api.bodies import Body
from glassflow_dagster.server.api.connections import asked
from glassflow_dagster.server.api.expressions import (
    FilterToCheck,
    FilterToTry,
    TransformToTry,
    check,
    try_filter,
    try_transform,
)
from glassflow_dagster.server.api.preview import preview
from glassflow_dagster.server.api.services import Given
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.samples import sample_newest

router = APIRouter(prefix="/api/v1", tags=["evaluation"])
_READ_SECONDS = 10.0
_MOST_SAMPLES = 1000


class DefinitionToTry(Body):
    """A definition, and samples: objects, or texts as they are in Kafka; without them the newest of the topic."""

    definition: dict[str, Any]
    source_id: str | None = Field(default=None, description="the source of the samples; by default the first one")
    samples: list[dict[str, Any] | str] | None = Field(default=None, max_length=_MOST_SAMPLES)
    limit: int = Field(default=20, ge=1, le=_MOST_SAMPLES, description="records to read from the topic")


@router.post("/filter/validate")
def validate_filter(body: FilterToCheck) -> dict[str, Any]:
    """Check the condition of a filter; `details.error` shows the place of a mistake."""
    check(body)
    return {}


@router.post("/filter/evaluate")
async def evaluate_filter(body: FilterToTry, services: Given) -> dict[str, Any]:
    """Say whether a sample passes a filter, or would be a dead letter."""
    return await services.evaluations.run(try_filter, body, services.session)


@router.post("/transform/expression/evaluate")
async def evaluate_transform(body: TransformToTry, services: Given) -> dict[str, Any]:
    """Evaluate the outputs of a stateless transform for a sample."""
    return await services.evaluations.run(try_transform, body, services.session)


@router.post("/pipeline/preview")
async def preview_definition(body: DefinitionToTry, services: Given) -> list[dict[str, Any]]:
    """Say for each sample what the definition makes of it: a row, a dead letter, a duplicate, or nothing."""

    def run() -> list[dict[str, Any]]:
        config = services.pipelines.load_sent(body.definition)
        source = _source(config, body.source_id)
        if body.samples is None:
            records = asked(lambda: _newest(source, body.limit))
        else:
            records = [_record(source, index, sample) for index, sample in enumerate(body.samples)]
        with services.session.use() as spark:
            outcomes = asked(lambda: preview(spark, config, source, records))
        return [
            {"partition": record.partition, "offset": record.offset, **outcome}
            for record, outcome in zip(records, outcomes, strict=True)
        ]

    return await services.evaluations.run(run)


def _source(config: PipelineConfig, source_id: str | None) -> Source:
    found = next((each for each in config.inputs if source_id in {None, each.source_id}), None)
    if found is None:
        raise not_found(f'the definition has no source "{source_id}"')
    return found


def _newest(source: Source, limit: int) -> list[Record]:
    """Return the newest records of a source's first topic."""
    topics = source.topic_names
    return list(sample_newest(source.connection_params, topics[0], limit, _READ_SECONDS))[-limit:] if topics else []


def _record(source: Source, index: int, sample: dict[str, Any] | str) -> Record:
    """Return a sample as a record of the source's topic, at the offset of its index."""
    value = sample if isinstance(sample, str) else json.dumps(sample)
    return Record(next(iter(source.topic_names), ""), 0, index, None, None, value.encode(errors="replace"), ())
