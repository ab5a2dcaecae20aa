"""Events among the messages of a topic, whatever their format, and a count of what else there is."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Events:
    """The objects among some messages, in their order, and how many messages were something else.

    `with_schema` says that the messages carry the id of a schema before their JSON.
    """

    objects: list[Event]
    others: Counter[str]
    with_schema: bool = False

    @property
    def messages(self) -> int:
        """How many messages there were."""
        return len(self.objects) + self.others.total()

    @property
    def others_text(self) -> str:
        """Name what the others were: `8 no JSON, 2 without a value`."""
        return ", ".join(f"{count:,} {what}" for what, count in self.others.most_common())
