"""Which pipelines' states can be rebuilt."""

import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.rebuild import require_possible
from glassflow_dagster.errors import GlassflowError
from tests.stores.clickhouse.definitions import PIPELINES, sms_status


def test_the_processing_clock_can_be_read_from_the_ledger_others_cannot() -> None:
    config = sms_status()
    require_possible(config)
    with pytest.raises(
        GlassflowError,
        match=r"the waiting events of a join depend on .*; continue without the state \(run FILE --accept-loss\)",
    ):
        require_possible(load_pipeline(PIPELINES / "orders_with_users.yaml", {}))
    (dedup,) = config.transforms
    on_events = dedup.model_copy(update={"config": dedup.config.model_copy(update={"clock": "event"})})
    with pytest.raises(GlassflowError, match="on the event clock it depends on the watermark"):
        require_possible(config.model_copy(update={"transforms": (on_events,)}))
