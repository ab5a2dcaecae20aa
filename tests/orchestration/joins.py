"""A pipeline with a join, as the tests of the Dagster side take it: both sources deduplicated."""

from typing import Any

from glassflow_dagster.config.model.pipeline import PipelineConfig
from tests.config.joins import joined

BOTH = [
    {"type": "dedup", "source_id": "bids", "config": {"key": "bid_id", "time_window": "1h"}},
    {"type": "dedup", "source_id": "lots", "config": {"keys": ["lot_no", "hall"], "time_window": "3h"}},
]
JOIN_FIGURES = ("matched", "unmatched", "waiting", "late", "accepted", "null_keys", "joined", "state_bytes")


def joined_definition(**changes: Any) -> dict[str, Any]:
    """Give the definition with changes, as `joined` takes them; only what they say of transforms differs from it."""
    return joined(**{"transforms": BOTH, **changes})


def joined_pipeline(**changes: Any) -> PipelineConfig:
    """Give the definition as it is read."""
    return PipelineConfig.model_validate(joined_definition(**changes))
