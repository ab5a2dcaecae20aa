"""Tells Spark's JVM how to reach the schema registry of a source."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.connections import SchemaRegistry
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Encoding, SchemaField, Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.client import java_certificates
from glassflow_dagster.stores.kafka.schema_registry import authorization
from glassflow_dagster.stream.spark.session import java, runs_locally
from glassflow_dagster.stream.stages.decode.decoder import field_specs
from glassflow_dagster.stream.stages.decode.key_fields_in_scala import key_fields, value_fields


def registry_name(pipeline_id: str, source_id: str) -> str:
    """Return the name under which the JVM knows the registry of a source."""
    return f"{pipeline_id}/{source_id}"


def registries_of(config: PipelineConfig, current: PipelineConfig) -> dict[str, SchemaRegistry]:
    """Return the registries of the sources that need one, by source_id, as the current definition has them.

    config: that one, or an older one that the checkpoint has kept without secrets, and whose address may be the very
    mistake that stopped the pipeline. Raises `GlassflowError` for an older one whose registry the current one does not
    have.
    """
    found = {}
    now = {source.source_id: source.schema_registry for source in current.sources}
    for index, source in enumerate(config.sources):
        if not source.reads_registry:
            continue
        registry = now.get(source.source_id)
        if registry is None:
            raise GlassflowError(
                f"sources[{index}].schema_registry: an open batch was begun with it, and its credentials are not "
                "stored; put it back, run once, then remove it"
            )
        found[source.source_id] = registry
    return found


def declare_registries(
    spark: SparkSession,
    config: PipelineConfig,
    registries: Mapping[str, SchemaRegistry],
    patience_seconds: float,
    folder: Path | None = None,
) -> None:
    """Declare the registries of a definition (`registries_of`), whose queries can then be built.

    patience_seconds: how long an answer is waited for.
    folder: keeps the schemas that were fetched; None for nowhere.
    Raises `GlassflowError` for certificates that are none, and on a Spark cluster, where each executor would ask the
    registry for itself, so that two could decide differently about one id.
    """
    for source in config.sources:
        registry = registries.get(source.source_id)
        if registry is None:
            continue
        if not runs_locally(spark):
            place = f"schema_registry of {source.source_id!r}"
            raise GlassflowError(f"{place}: needs spark.master local[...]; on a cluster it is not supported")
        # Of the definition that is run: an open batch finds what it has read there, whatever the address is now.
        own = _own_folder(folder, source.source_id, source.schema_registry or registry) if folder else None
        declare_registry(spark, registry_name(config.pipeline_id, source.source_id), registry, patience_seconds, own)


def declare_registry(
    spark: SparkSession, name: str, registry: SchemaRegistry, patience_seconds: float, folder: Path | None = None
) -> None:
    """Declare a registry under a name (`registry_name`); parameters and errors as of `declare_registries`."""
    java(spark).glassflow.SchemaStore.forget(name)
    try:
        java(spark).glassflow.RegistrySettings.declare(
            name, json.dumps(registry_settings(registry, patience_seconds, folder))
        )
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        place = f"schema_registry of {name.rpartition('/')[2]!r}"
        raise GlassflowError(f"{place}: the certificates cannot be used ({reason}); correct them") from error


def _own_folder(folder: Path, source_id: str, registry: SchemaRegistry) -> Path:
    """Return the folder for the schemas of one source and registry: ids of two registries may be the same."""
    digest = hashlib.sha256("\0".join([source_id, *sorted(registry.urls)]).encode()).hexdigest()[:16]
    return folder / digest


def require_schemas(spark: SparkSession, config: PipelineConfig) -> None:
    """Raise `GlassflowError` for a schema in a definition that is none of its format's."""
    for index, source in enumerate(config.sources):
        require_source_schemas(spark, source, f"sources[{index}].")


def require_source_schemas(spark: SparkSession, source: Source, path: str) -> None:
    """Raise `GlassflowError` for a schema of a source that is none of its format's. path: of the source's keys."""
    _require_schema(spark, f"{path}schema", source.encoding, value_fields(source.schema_fields))
    if source.key_encoding is not None:
        _require_schema(spark, f"{path}key_schema", source.key_encoding, key_fields(source.schema_fields))


def _require_schema(spark: SparkSession, path: str, encoding: Encoding, fields: Sequence[SchemaField]) -> None:
    schema = encoding.schema
    if schema is None or schema.file is None:
        return
    # Only the defaults of a reader's schema are used.
    checked = json.dumps(field_specs(fields)) if encoding.of_registry else None
    if problem := java(spark).glassflow.SchemaCheck.problem(encoding.format, schema.file, schema.message_type, checked):
        raise GlassflowError(f"{path}: {problem}; correct it")


def registry_settings(registry: SchemaRegistry, patience_seconds: float, folder: Path | None) -> dict[str, object]:
    """Return what the JVM's `RegistrySettings` are declared with. folder: that keeps schemas; None to keep none."""
    return {
        "urls": list(registry.urls),
        "authorization": authorization(registry),
        "tls": java_certificates("schema_registry", registry),
        "folder": str(folder.absolute()) if folder else None,
        "patience_ms": int(patience_seconds * 1000),
    }
