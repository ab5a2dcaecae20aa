"""Which field tells events apart: what the definition proposes to deduplicate by.

A producer that sends twice sends the same event again. So a key is judged on the different events of the sample, where
it should have (nearly) as many values as there are events; a field that many different events share, such as a
customer's id, has fewer.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from glassflow_dagster.inference.columns import snake_case
from glassflow_dagster.inference.events import Event
from glassflow_dagster.inference.fields import Field

# A resend may differ in a field such as the time of sending, so that it counts as another event.
NEARLY_UNIQUE = 0.8
_ID = re.compile(r"(?:^|_)(?:id|uuid|guid|key)$")
# Names that say the event itself is meant.
_EVENTS_OWN = frozenset({"id", "_id", "uuid", "guid", "event_id", "event_uuid", "message_id", "msg_id", "record_id"})


@dataclass(frozen=True)
class Key:
    """A field that may be the key: its values, and how many different events share them."""

    name: str
    values: int
    events: int
    different_events: int

    @property
    def is_unique(self) -> bool:
        """Whether nearly every event has a value of its own."""
        return self.values >= NEARLY_UNIQUE * self.different_events

    @property
    def text(self) -> str:
        """Say what the sample had of it."""
        repeats = self.events - self.values
        if not repeats:
            return f"{self.values:,} values in {self.events:,} events, none repeated"
        other = self.different_events - self.values
        what = "all of them copies of an earlier event" if not other else f"{other:,} of them in events that differ"
        return f"{self.values:,} values in {self.events:,} events; {repeats:,} repeats, {what}"


def candidates(fields: Sequence[Field], events: Sequence[Event], topic: str) -> list[Key]:
    """List the required scalar fields that are named like an id, best first: unique ones, then the event's own id."""
    different = len({json.dumps(event, sort_keys=True) for event in events})
    own = _EVENTS_OWN | {f"{name}_id" for name in _singulars(snake_case(topic.replace(".", "_")))}
    found = [
        (
            (name not in own, field.name.count("."), position),
            Key(field.name, len(set(field.values)), len(events), different),
        )
        for position, field in enumerate(fields)
        if field.required
        and field.kind in ("string", "int", "uint")
        and len(field.types) == 1
        and _ID.search(name := snake_case(field.name))
    ]
    return [key for _, key in sorted(found, key=lambda entry: (not entry[1].is_unique, entry[0]))]


def _singulars(topic: str) -> set[str]:
    """Give what an event of a topic may be called: `orders` has an order, `sms_status_events` a status."""
    words = [word for word in topic.split("_") if word]
    names = {topic, *words}
    return names | {name.removesuffix("s") for name in names}
