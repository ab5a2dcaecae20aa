"""What of records may appear in Dagster: values in metadata, and text in a run's log.

Dagster keeps the metadata of checks and runs longer than dead letters are retained and shows it to all its users. So
values are left out unless the definition (`checks.show_values`) or the environment allows them. Descriptions, which
alerts send to a webhook, never contain values.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.safe_text import printable

# `make dev` sets it to true, as the embedded stack is for development.
SHOW_VALUES = "GLASSFLOW_SHOW_VALUES"


def shows_values(config: PipelineConfig) -> bool:
    """Return whether the pipeline's checks may show values: `checks.show_values`, else the environment variable."""
    setting = config.checks.show_values
    return os.environ.get(SHOW_VALUES) == "true" if setting is None else setting


def shown_figures(config: PipelineConfig, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the examples, which contain keys of records, unless the pipeline's checks may show values."""
    return {name: figure for name, figure in figures.items() if not name.endswith("examples") or shows_values(config)}


def log_report(log: dg.DagsterLogManager) -> Callable[[str], None]:
    """Return a function that writes progress to a run's log, which terminals show, too."""
    return lambda text: log.info("%s", printable(text))
