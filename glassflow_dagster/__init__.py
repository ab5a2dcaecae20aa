"""Streams from Kafka that arrive in ClickHouse clean: deduplicated, joined, and written exactly once.

The names below are the Python interface, which is described in docs/reference/python.md. Each is imported when it is
first used: `import glassflow_dagster` itself imports neither Dagster nor Spark nor a server's client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassflow_dagster.control.runners.local import LocalRunner
    from glassflow_dagster.definition.model.pipeline import PipelineConfig
    from glassflow_dagster.errors import GlassflowError
    from glassflow_dagster.orchestration.alerts.email import EmailChannel
    from glassflow_dagster.orchestration.alerts.slack import SlackChannel
    from glassflow_dagster.orchestration.alerts.webhook import WebhookChannel
    from glassflow_dagster.orchestration.build_definitions import (
        Orchestration,
        build_folder_definitions,
        build_pipeline_assets,
        build_pipeline_definitions,
    )
    from glassflow_dagster.orchestration.component.pipeline_folder import PipelineFolder
    from glassflow_dagster.orchestration.options import Automation, CheckOptions, Node, OpOptions, PipelineOptions
    from glassflow_dagster.public import load_pipeline, read_ledger, run_pipeline, verify_pipeline

# Public name -> the module that has it.
_MODULES = {
    "PipelineFolder": "orchestration.component.pipeline_folder",
    "PipelineConfig": "definition.model.pipeline",
    "GlassflowError": "errors",
    "EmailChannel": "orchestration.alerts.email",
    "SlackChannel": "orchestration.alerts.slack",
    "WebhookChannel": "orchestration.alerts.webhook",
    "Automation": "orchestration.options",
    "CheckOptions": "orchestration.options",
    "Node": "orchestration.options",
    "OpOptions": "orchestration.options",
    "PipelineOptions": "orchestration.options",
    "Orchestration": "orchestration.build_definitions",
    "build_folder_definitions": "orchestration.build_definitions",
    "build_pipeline_assets": "orchestration.build_definitions",
    "build_pipeline_definitions": "orchestration.build_definitions",
    "load_pipeline": "public",
    "read_ledger": "public",
    "run_pipeline": "public",
    "verify_pipeline": "public",
    "LocalRunner": "control.runners.local",
}

__all__ = [  # the keys of _MODULES, which type checkers read here only
    "Automation",
    "CheckOptions",
    "EmailChannel",
    "GlassflowError",
    "LocalRunner",
    "Node",
    "OpOptions",
    "Orchestration",
    "PipelineConfig",
    "PipelineFolder",
    "PipelineOptions",
    "SlackChannel",
    "WebhookChannel",
    "build_folder_definitions",
    "build_pipeline_assets",
    "build_pipeline_definitions",
    "load_pipeline",
    "read_ledger",
    "run_pipeline",
    "verify_pipeline",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, by which Dagster finds the component."""
    return [*globals(), *__all__]
