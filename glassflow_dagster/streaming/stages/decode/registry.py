"""Tells Spark's JVM how to reach the schema registry of a source."""

import base64
import hashlib
import json
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from glassflow_dagster.config.certificates import read_pem, read_private_key
from glassflow_dagster.config.model.connections import SchemaRegistry
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.spark.session import is_local, java
from glassflow_dagster.streaming.stages.decode.schema_formats import fields_json


def registry_name(pipeline_id: str, source_id: str) -> str:
    """Return the name under which the JVM knows the registry of a source."""
    return f"{pipeline_id}/{source_id}"


def declare_registries(
    spark: SparkSession, config: PipelineConfig, patience_seconds: float, folder: Path | None = None
) -> None:
    """Declare the registries from which a definition's sources need schemas; its queries can then be built.

    patience_seconds: how long an answer is waited for. folder: keeps the schemas that were fetched; None for nowhere.
    Raises `GlassflowError` for certificates that are none, and on a Spark cluster, where each executor would ask the
    registry for itself, so that two could decide differently about one id.
    """
    for index, source in enumerate(config.sources):
        if source.schema_registry is None or not source.has_schema:
            continue
        place = f"sources[{index}].schema_registry"
        if not is_local(str(spark.conf.get("spark.master"))):
            raise GlassflowError(
                f"{place}: format {source.format} needs spark.master local[...]; a cluster is not supported"
            )
        own = _own_folder(folder, source) if folder else None
        name = registry_name(config.pipeline_id, source.source_id)
        java(spark).glassflow.SchemaStore.forget(name)
        try:
            settings = json.dumps(_settings(source.schema_registry, patience_seconds, own))
            java(spark).glassflow.RegistrySettings.declare(name, settings)
        except Py4JJavaError as error:
            reason = error.java_exception.getMessage()
            raise GlassflowError(f"{place}: the certificates cannot be used ({reason}); correct them") from error


def _own_folder(folder: Path, source: Source) -> Path:
    """Return the folder for the schemas of one source and registry: ids of two registries may be the same."""
    registry = source.schema_registry
    assert registry is not None
    digest = hashlib.sha256("\0".join([source.source_id, *sorted(registry.urls)]).encode()).hexdigest()[:16]
    return folder / digest


def require_schemas(spark: SparkSession, config: PipelineConfig) -> None:
    """Raise `GlassflowError` for a schema in a definition that is none of its format's."""
    for index, source in enumerate(config.sources):
        if source.schema_ is not None:
            check = java(spark).glassflow.SchemaCheck.problem
            schema = source.schema_
            if problem := check(source.format, schema.file, schema.message_type, fields_json(source.schema_fields)):
                raise GlassflowError(f"sources[{index}].schema: {problem}; correct it")


def _settings(registry: SchemaRegistry, patience_seconds: float, folder: Path | None) -> dict[str, object]:
    return {
        "urls": list(registry.urls),
        "authorization": _authorization(registry),
        "tls": _tls(registry),
        "folder": str(folder.absolute()) if folder else None,
        "patience_ms": int(patience_seconds * 1000),
    }


def _authorization(registry: SchemaRegistry) -> str | None:
    """Return the value of the header Authorization; None without credentials."""
    if registry.bearer_token:
        return f"Bearer {registry.bearer_token.get_secret_value().strip()}"
    if registry.api_key:
        secret = registry.api_secret.get_secret_value() if registry.api_secret else ""
        return "Basic " + base64.b64encode(f"{registry.api_key}:{secret}".encode()).decode()
    return None


def _tls(registry: SchemaRegistry) -> dict[str, str]:
    """Return the settings of Kafka's Java clients for the certificates."""
    settings: dict[str, str] = {}
    if registry.root_ca:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": read_pem("schema_registry.root_ca", registry.root_ca),
        }
    if registry.client_cert and registry.client_key:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": read_pem("schema_registry.client_cert", registry.client_cert),
            "ssl.keystore.key": read_private_key("schema_registry.client_key", registry.client_key),
        }
    return settings
