"""The events in a sample of messages, whatever their format, and the number of messages that are no events."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Events:
    """The JSON objects among the sampled messages, in order, and the number of the other messages by reason.

    with_schema: a schema id in Confluent's wire format precedes the JSON of the objects.
    """

    objects: list[Event]
    skipped: Counter[str]
    with_schema: bool = False

    @property
    def messages(self) -> int:
        """The number of messages read."""
        return len(self.objects) + self.skipped.total()

    @property
    def skipped_text(self) -> str:
        """The number of skipped messages by reason, as text: `8 no JSON, 2 without a value`."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.most_common())
