"""A pipeline with a join for the tests of Dagster's side; both sources are deduplicated."""

from typing import Any

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.definition.joins import joined

BOTH = [
    {"type": "dedup", "source_id": "bids", "config": {"key": "bid_id", "time_window": "1h"}},
    {"type": "dedup", "source_id": "lots", "config": {"keys": ["lot_no", "hall"], "time_window": "3h"}},
]
JOIN_FIGURES = ("matched", "unmatched", "waiting", "late", "accepted", "null_keys", "joined", "state_bytes")


def joined_definition(**changes: Any) -> dict[str, Any]:
    """Return the definition of `joined` with both sources deduplicated, and with changes."""
    return joined(**{"transforms": BOTH, **changes})


def joined_pipeline(**changes: Any) -> PipelineConfig:
    """Return the parsed definition."""
    return PipelineConfig.model_validate(joined_definition(**changes))
