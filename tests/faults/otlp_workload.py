"""Log records of OpenTelemetry in export requests, so that a record of Kafka has several events or none."""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.faults.dedup_workload import DedupWorkload, sink_of, table
from tests.faults.records import PARTITIONS, Event, Record
from tests.support.definition import dedup, definition, filter_transform, mapping

_SIZES = 5  # a request has 0 to 4 log records, by its number
_TEXT = "x" * 60
_TOO_LARGE = 2**31  # for an Int32, as the table has it
_REFUSED = 2_000_000_000


class OtlpWorkload(DedupWorkload):
    """Requests as OpenTelemetry's collector writes them; the id is the body, and `n` the flags of a log record.

    A sixth of the log records are duplicates, in part within their request. Some requests are no JSON.
    """

    refused_numbers = (_REFUSED,)

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        source = {
            "type": "otlp.logs", "source_id": "logs", "topic": self.topics()[0], "format": "otlp_json",
            "connection_params": {"brokers": [brokers]},
        }  # fmt: skip
        sink = sink_of(self.name, clickhouse_port, self.block_rows, {})
        sink["mapping"] = [
            mapping("body", "String", "id"), mapping("flags", "Int32", "n"),
            mapping("attributes.text", "String", "text"),
        ]  # fmt: skip
        return definition(
            self.name,
            source,
            sink,
            filter_transform("logs", 'attributes["skip"] != "true"'),
            dedup("logs", "body", time_window=f"{self.window_seconds}s"),
        )

    def tables(self) -> Sequence[str]:
        return table(self.name, f"id String, n Int32, text String, CONSTRAINT small CHECK n != {_REFUSED}", "id")

    def events(self, seed: str, number: int) -> Iterator[Event]:
        draw = random.Random(seed)
        refused = {draw.randrange(100, 900) for _ in range(2)}
        for index in itertools.count():
            logs = [self._log(draw, number, index, item) for item in range(index % _SIZES)]
            if logs and index in refused:
                logs[0] |= {"flags": _REFUSED}
            value = b"{not json" if draw.random() < 0.01 else _request(logs)
            # All events with one id are in one partition.
            yield Event(self.topics()[0], "", value, index % PARTITIONS)

    def last_events(self, number: int) -> Sequence[Event]:
        return [Event(self.topics()[0], "last", _request([_log_record(f"last {number}", 1)]))]

    def events_of(self, record: Record) -> Iterator[tuple[int, dict[str, Any] | None]]:
        try:
            logs = json.loads(record.value)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        except ValueError:
            yield -1, {}
            return
        if not logs:
            yield -1, None
        for item, log in enumerate(logs):
            event = {"n": log["flags"], "text": _TEXT, "skip": len(log["attributes"]) > 1}
            yield item, {"id": log["body"]["stringValue"], **event} if "body" in log else {}

    def _log(self, draw: random.Random, number: int, index: int, item: int) -> dict[str, Any]:
        chance = draw.random()
        of_number, of_index, of_item = number, index, item
        if item and chance < 0.05:
            of_item = draw.randrange(item)
        elif index and chance < 0.15:
            of_index = draw.randrange(index % PARTITIONS, index + 1, PARTITIONS)
        elif number and chance < 0.17:
            of_number, of_index = number - 1, draw.randrange(index % PARTITIONS, 500, PARTITIONS)
        log = _log_record(f"{of_number}-{of_index}-{of_item}", index)
        match draw.randrange(100):
            case 0:
                del log["body"]
            case 1:
                log["flags"] = _TOO_LARGE
            case 2 | 3 | 4:
                log["attributes"].append({"key": "skip", "value": {"boolValue": True}})
        return log


def _log_record(body: str, number: int) -> dict[str, Any]:
    text = {"key": "text", "value": {"stringValue": _TEXT}}
    return {"timeUnixNano": "1", "body": {"stringValue": body}, "flags": number, "attributes": [text]}


def _request(logs: Sequence[dict[str, Any]]) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [*logs]}]}]}).encode()
