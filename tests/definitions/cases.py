"""The definitions of this folder, and the expected results of each.

A definition is in `v1/`, `v2/` or `v3/`. `expected/<its name>.yaml` states the results; its numbers were derived by
hand from the rules of the format, not copied from a run:

about         what the definition is an example of
environment   values of its variables
settings      what it means besides its rows: path in the loaded definition -> value
warnings      how the warnings of `validate` begin
table         a statement that creates the table before the run; without it the definition's own mapping does
partitions    of the topic; 1 by default
committed     offsets that a consumer group has committed in the first source's topic before: {group, offsets}
messages      sent in this order, by default to partition 0 of the first source's topic: `json` (a value, written
              without blanks), `text`, `base64`, or `tombstone`; and `source` (its id), `key`, `headers`,
              `partition`, `timestamp` (milliseconds), `schema_id` (Confluent's header before the value),
              `aborted` (sent in an aborted transaction)
rows          all rows of the table as ClickHouse writes them in JSON, in any order; `<batch time>` stands for a time
              within the run
totals        what the run counted; 0 by default
dead_letters  source (by default the first), partition (0), offset, stage and the beginning of the reason, of each
later         messages, rows, totals and dead letters of a second run
"""

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
VERSIONS = ("v1", "v2", "v3")
_SEED = 3
_MESSAGE_KEYS = {
    "json", "text", "base64", "tombstone",
    "source", "key", "headers", "partition", "timestamp", "schema_id", "aborted",
}  # fmt: skip


@dataclass(frozen=True)
class Message:
    """A record for the topic of a source, by default the first one."""

    source: str | None
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int
    timestamp: int
    aborted: bool


@dataclass(frozen=True)
class DeadLetter:
    """A rejected record: source (by default the first), partition, offset, stage, and how the reason begins."""

    source: str | None
    partition: int
    offset: int
    stage: str
    reason: str


@dataclass(frozen=True)
class Expected:
    """The messages of one run and their results."""

    messages: list[Message]
    rows: list[dict[str, Any]]
    totals: dict[str, int]
    dead_letters: list[DeadLetter]


@dataclass(frozen=True)
class Case:
    """A definition of the folder."""

    file: Path

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def version(self) -> str:
        return self.file.parent.name

    @cached_property
    def raw(self) -> dict[str, Any]:
        """Parse the definition file."""
        text = self.file.read_text(encoding="utf-8")
        parsed = json.loads(text) if self.file.suffix == ".json" else yaml.safe_load(text)
        return dict(parsed)

    @cached_property
    def sidecar(self) -> dict[str, Any]:
        """Parse the file of expected results."""
        return dict(yaml.safe_load((FOLDER / "expected" / f"{self.name}.yaml").read_text(encoding="utf-8")))

    @property
    def has_join(self) -> bool:
        join = self.raw.get("join") or {}
        return bool(join.get("enabled"))

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.sidecar.get("environment", {}))

    @property
    def runs(self) -> list[Expected]:
        """Return the expected results of each run."""
        first, later = self.sidecar, self.sidecar.get("later")
        return [_expected(part) for part in (first, later) if part]


CASES = [
    Case(file)
    for version in VERSIONS
    for file in sorted((FOLDER / version).iterdir())
    if file.suffix in (".json", ".yaml")
]


def draw_cases(of_each: int, joins: int) -> list[Case]:
    """Draw some cases of each version, and some more with a join; the same ones every time."""
    draw = random.Random(_SEED)
    chosen = [case for version in VERSIONS for case in draw.sample([c for c in CASES if c.version == version], of_each)]
    return chosen + draw.sample([case for case in CASES if case.has_join and case not in chosen], joins)


def _expected(part: dict[str, Any]) -> Expected:
    return Expected(
        messages=[_message(one) for one in part["messages"]],
        rows=part["rows"],
        totals=part["totals"],
        dead_letters=[
            DeadLetter(**{"source": None, "partition": 0, **dead_letter})
            for dead_letter in part.get("dead_letters", [])
        ],
    )


def _message(fields: dict[str, Any]) -> Message:
    assert fields.keys() <= _MESSAGE_KEYS, fields
    values = list(_values(fields))
    assert len(values) == 1, fields
    value = values[0]
    if "schema_id" in fields:
        assert value is not None
        value = b"\0" + fields["schema_id"].to_bytes(4, "big") + value
    return Message(
        source=fields.get("source"),
        value=value,
        key=fields["key"].encode() if "key" in fields else None,
        headers=[(name, text.encode()) for name, text in fields.get("headers", {}).items()],
        partition=fields.get("partition", 0),
        timestamp=fields.get("timestamp", 0),
        aborted=fields.get("aborted", False),
    )


def _values(fields: dict[str, Any]) -> Iterator[bytes | None]:
    if "json" in fields:
        yield json.dumps(fields["json"], separators=(",", ":"), ensure_ascii=False).encode()
    if "text" in fields:
        yield fields["text"].encode()
    if "base64" in fields:
        yield base64.b64decode(fields["base64"])
    if "tombstone" in fields:
        yield None
