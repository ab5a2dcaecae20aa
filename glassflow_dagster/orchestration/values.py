"""Whether values of records may go into what Dagster keeps.

Dagster keeps the metadata of checks and runs for as long as its storage lasts, past the retention of dead letters, and
shows it to everybody who may look at it. So values stay out, unless a definition or the machine says otherwise.
Descriptions, which alerts carry on to a webhook, never hold any.
"""

import os
from collections.abc import Mapping
from typing import Any

from glassflow_dagster.config.model.pipeline import PipelineConfig

# `make dev` sets it: what is in the embedded stack is there to be looked at.
SHOW_VALUES = "GLASSFLOW_SHOW_VALUES"


def shows_values(config: PipelineConfig) -> bool:
    """Whether the pipeline's checks may show values: what `checks.show_values` says, else the environment."""
    setting = config.checks.show_values
    return os.environ.get(SHOW_VALUES) == "true" if setting is None else setting


def shown_figures(config: PipelineConfig, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the examples, which are keys of records, where values are not to be shown."""
    return {name: figure for name, figure in figures.items() if not name.endswith("examples") or shows_values(config)}
