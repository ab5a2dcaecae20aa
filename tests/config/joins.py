"""A definition with a join that is right, to be changed in a place or two."""

from typing import Any

from tests.config.changes import changed

CONNECTION = {"brokers": ["k:9092"], "protocol": "PLAINTEXT", "mechanism": "NO_AUTH"}
JOINED: dict[str, Any] = {
    "version": "v3",
    "pipeline_id": "bids-with-lots",
    "sources": [
        {
            "type": "kafka",
            "source_id": "lots",
            "topic": "auction.lots",
            "connection_params": CONNECTION,
            "start": "earliest",
            "schema_fields": [
                {"name": "lot_no", "type": "int64"},
                {"name": "hall", "type": "string"},
                {"name": "title", "type": "string"},
                {"name": "opened", "type": "int"},
                {"name": "photos", "type": "array"},
            ],
        },
        {
            "type": "kafka",
            "source_id": "bids",
            "topic": "auction.bids",
            "connection_params": CONNECTION,
            "start": "latest",
            "schema_fields": [
                {"name": "bid_id", "type": "string"},
                {"name": "auction_no", "type": "uint32"},
                {"name": "hall", "type": "string", "required": False},
                {"name": "amount", "type": "float"},
                {"name": "note", "type": "string", "required": False},
                {"name": "at", "type": "string"},
            ],
        },
    ],
    "transforms": [
        {"type": "filter", "source_id": "bids", "config": {"expression": "amount > 0.0"}},
        {"type": "dedup", "source_id": "bids", "config": {"key": "bid_id", "time_window": "1h"}},
    ],
    "join": {
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
    "sink": {
        "type": "clickhouse",
        "connection_params": {"host": "ch", "port": "9000", "database": "d", "username": "u", "password": "p"},
        "table": "bids",
        "mapping": [
            {"name": "bid_id", "column_name": "bid_id", "column_type": "UUID"},
            {"name": "lot_no", "column_name": "lot_no", "column_type": "Int64"},
            {"name": "amount", "column_name": "amount", "column_type": "Float64"},
            {"name": "note", "column_name": "note", "column_type": "String"},
            {"name": "lot_title", "column_name": "lot_title", "column_type": "String"},
            {"name": "lot_time", "column_name": "lot_time", "column_type": "DateTime64(3)"},
            {"name": "_batch_time", "column_name": "joined_at", "column_type": "DateTime64(6)"},
        ],
    },
}
# The changes that put the definition on the event clock.
EVENT_CLOCK = {
    "join__clock": "event",
    "join__left_source__event_time": "at",
    "join__right_source__event_time": "opened",
}


def joined(**changes: Any) -> dict[str, Any]:
    """Change the definition, as `changed` does."""
    return changed(JOINED, **changes)
