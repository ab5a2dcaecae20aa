"""The deduplicated events with their id in Kafka's key, as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.records import Event, Record
from tests.support.definition import mapping

_ID = "_key.id"


class KeyedWorkload(DedupWorkload):
    """Events for a pipeline that deduplicates by a field of the key; some keys are no JSON, some have no id."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        source, columns = made["sources"][0], made["sink"]["mapping"]
        source["key_format"] = "json"
        source["schema_fields"] = [
            {**field, "name": _ID} if field["name"] == "id" else field for field in source["schema_fields"]
        ]
        made["sink"]["mapping"] = [mapping(_ID, "String", "id"), *(each for each in columns if each["name"] != "id")]
        made["transforms"][1]["config"]["key"] = _ID
        return made

    def last_events(self, number: int) -> Sequence[Event]:
        return [_with_key(event, {"id": f"last {number}"}) for event in super().last_events(number)]

    def encode(self, event: dict[str, Any]) -> bytes:
        return json.dumps({name: value for name, value in event.items() if name != "id"}).encode()

    def event_of(self, record: Record) -> dict[str, Any]:
        try:
            value, key = self.decode(record.value), json.loads(record.key)
        except ValueError:
            return {}
        return {**value, **key} if "id" in key else {}

    def _event(self, key: str, number: int, chance: float, *, server_refuses: bool) -> Event:
        event = super()._event(key, number, chance, server_refuses=server_refuses)
        if event.value == b"{not json":
            # Half of these have the bytes that are no JSON in their keys.
            good = self.encode({"n": number, "text": ""})
            return event._replace(key="{not json", value=good) if number % 2 else _with_key(event, {"id": key})
        return _with_key(event, {} if 0.01 <= chance < 0.02 and not server_refuses else {"id": key})


def _with_key(event: Event, key: dict[str, str]) -> Event:
    return event._replace(key=json.dumps(key))
