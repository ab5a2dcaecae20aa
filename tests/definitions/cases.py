"""The folder's definitions, and what each is expected to do.

A definition lies in `v1/`, `v2/` or `v3/`. `expected/<its name>.yaml` says in the words of a person what comes of it;
the numbers in there were worked out by hand from the rules of the format, not read off a run:

about         what the definition is there for
environment   values of its variables
settings      what it means beside its rows: path in the loaded definition -> value
warnings      how the warnings of `validate` begin
table         a statement that makes the table before; without it the definition's own mapping does
partitions    of the topic; 1 where nothing is said
committed     offsets that a consumer group has committed in the first source's topic before: {group, offsets}
messages      sent in this order, each to partition 0 of the first source's topic where nothing is said: `json` (a
              value, written without blanks), `text`, `base64`, or `tombstone`; and `source` (its id), `key`,
              `headers`, `partition`, `timestamp` (milliseconds), `schema_id` (Confluent's header before the value),
              `aborted` (in a transaction that came to nothing)
rows          all rows of the table as ClickHouse writes them in JSON, in any order; `<batch time>` stands for a time
              within the run
totals        what the run counted; 0 where nothing is said
dead_letters  source (the first), partition (0), offset, stage and the beginning of the reason, of every one
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
    """A record for the topic of a source, the first one where it names none."""

    source: str | None
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int
    timestamp: int
    aborted: bool


@dataclass(frozen=True)
class DeadLetter:
    """A record that is refused: where it was read, the first source where none is named, and how the reason begins."""

    source: str | None
    partition: int
    offset: int
    stage: str
    reason: str


@dataclass(frozen=True)
class Expected:
    """What one run is given and what comes of it."""

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
        """The file as it is written."""
        text = self.file.read_text(encoding="utf-8")
        parsed = json.loads(text) if self.file.suffix == ".json" else yaml.safe_load(text)
        return dict(parsed)

    @cached_property
    def sidecar(self) -> dict[str, Any]:
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
        first, later = self.sidecar, self.sidecar.get("later")
        return [_expected(part) for part in (first, later) if part]


CASES = [
    Case(file)
    for version in VERSIONS
    for file in sorted((FOLDER / version).iterdir())
    if file.suffix in (".json", ".yaml")
]


def drawn(of_each: int, joins: int) -> list[Case]:
    """Draw some of each version, and some more that have a join: the same ones every time."""
    draw = random.Random(_SEED)
    chosen = [case for version in VERSIONS for case in draw.sample([c for c in CASES if c.version == version], of_each)]
    return chosen + draw.sample([case for case in CASES if case.has_join and case not in chosen], joins)


def _expected(part: dict[str, Any]) -> Expected:
    return Expected(
        messages=[_message(one) for one in part["messages"]],
        rows=part["rows"],
        totals=part["totals"],
        dead_letters=[
            DeadLetter(**{"source": None, "partition": 0, **letter}) for letter in part.get("dead_letters", [])
        ],
    )


def _message(given: dict[str, Any]) -> Message:
    assert given.keys() <= _MESSAGE_KEYS, given
    values = list(_values(given))
    assert len(values) == 1, given
    value = values[0]
    if "schema_id" in given:
        assert value is not None
        value = b"\0" + given["schema_id"].to_bytes(4, "big") + value
    return Message(
        source=given.get("source"),
        value=value,
        key=given["key"].encode() if "key" in given else None,
        headers=[(name, text.encode()) for name, text in given.get("headers", {}).items()],
        partition=given.get("partition", 0),
        timestamp=given.get("timestamp", 0),
        aborted=given.get("aborted", False),
    )


def _values(given: dict[str, Any]) -> Iterator[bytes | None]:
    if "json" in given:
        yield json.dumps(given["json"], separators=(",", ":"), ensure_ascii=False).encode()
    if "text" in given:
        yield given["text"].encode()
    if "base64" in given:
        yield base64.b64decode(given["base64"])
    if "tombstone" in given:
        yield None
