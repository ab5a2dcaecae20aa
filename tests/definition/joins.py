"""A valid definition with a join, for tests that change a few keys."""

from typing import Any

from tests.definition.changes import changed
from tests.support import definition as v3

_LOTS = v3.fields(lot_no="int64", hall="string", title="string", opened="int", photos="array")
_BIDS = [
    *v3.fields(bid_id="string", auction_no="uint32"),
    {"name": "hall", "type": "string", "required": False},
    {"name": "amount", "type": "float"},
    {"name": "note", "type": "string", "required": False},
    {"name": "at", "type": "string"},
]
_COLUMNS = {
    "bid_id": "UUID", "lot_no": "Int64", "amount": "Float64", "note": "String", "lot_title": "String",
    "lot_time": "DateTime64(3)",
}  # fmt: skip
JOINED = v3.definition(
    "bids-with-lots",
    [
        v3.source("lots", _LOTS, "k:9092", topic="auction.lots", start="earliest"),
        v3.source("bids", _BIDS, "k:9092", topic="auction.bids", start="latest"),
    ],
    v3.sink(
        [*map(v3.mapping, _COLUMNS, _COLUMNS.values()), v3.mapping("_batch_time", "DateTime64(6)", "joined_at")],
        {"host": "ch", "port": "9000", "database": "d", "username": "u", "password": "p"},
        table="bids",
    ),
    v3.filter_transform("bids", "amount > 0.0"),
    v3.dedup("bids", "bid_id", time_window="1h"),
    join={
        "enabled": True,
        "type": "temporal",
        "left_source": {"source_id": "bids", "key": "auction_no", "time_window": "20m"},
        "right_source": {"source_id": "lots", "key": "lot_no", "time_window": "2h"},
        "output_fields": [
            {"source_id": "bids", "name": "bid_id", "output_name": "bid_id"},
            {"source_id": "bids", "name": "auction_no", "output_name": "lot_no"},
            {"source_id": "bids", "name": "amount"},
            {"source_id": "bids", "name": "note"},
            {"source_id": "lots", "name": "title", "output_name": "lot_title"},
            {"source_id": "lots", "name": "_timestamp", "output_name": "lot_time"},
        ],
    },
)
# The changes that switch the definition to the event clock.
EVENT_CLOCK = {
    "join__clock": "event",
    "join__left_source__event_time": "at",
    "join__right_source__event_time": "opened",
}


def joined(**changes: Any) -> dict[str, Any]:
    """Return the definition with changes, as `changed` does."""
    return changed(JOINED, **changes)
