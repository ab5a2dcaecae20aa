"""The events in a sample of messages, whatever their format, and the number of messages that are no events."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Event = dict[str, Any]


@dataclass(frozen=True)
class Declared:
    """What a schema says of a field: its type in a definition, its column and a remark on that ('' for none)."""

    type: str
    column: str
    remark: str
    optional: bool


@dataclass(frozen=True)
class Events:
    """The events among the sampled messages, in order, and the number of the other messages by reason.

    with_schema: a schema id in Confluent's wire format precedes the events, or is in a header.
    declared: the fields of their schema, by name (None for one of several types); None for JSON.
    """

    objects: list[Event]
    skipped: Counter[str]
    with_schema: bool = False
    format: Literal["json", "avro", "protobuf"] = "json"
    declared: Mapping[str, Declared | None] | None = None

    @property
    def messages(self) -> int:
        """The number of messages read."""
        return len(self.objects) + self.skipped.total()

    @property
    def skipped_text(self) -> str:
        """The number of skipped messages by reason, as text: `8 no JSON, 2 without a value`."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.most_common())
