"""Find the field that identifies an event: the key that the definition proposes for deduplication.

A producer that sends twice sends the same event again. So a key is judged by the distinct events of the sample: it
should have (nearly) as many values as there are distinct events. A field that many distinct events share, such as a
customer's id, has fewer.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from glassflow_dagster.inference.columns import snake_case
from glassflow_dagster.inference.events import Event
from glassflow_dagster.inference.fields import Field

# Less than 1: a resend may differ in a field such as the time of sending, and then counts as a distinct event.
NEARLY_UNIQUE = 0.8
_ID = re.compile(r"(?:^|_)(?:id|uuid|guid|key)$")
# Names for the id of the event itself.
_EVENTS_OWN = frozenset({"id", "_id", "uuid", "guid", "event_id", "event_uuid", "message_id", "msg_id", "record_id"})


@dataclass(frozen=True)
class Key:
    """A field that may be the key: the number of its distinct values, of events, and of distinct events."""

    name: str
    values: int
    events: int
    different_events: int

    @property
    def is_unique(self) -> bool:
        """True when nearly every distinct event has a value of its own."""
        return self.values >= NEARLY_UNIQUE * self.different_events

    @property
    def text(self) -> str:
        """The counts as a sentence for a comment in the definition."""
        repeats = self.events - self.values
        if not repeats:
            return f"{self.values:,} values in {self.events:,} events, none repeated"
        in_differing_events = self.different_events - self.values
        detail = (
            f"{in_differing_events:,} of them in events that differ"
            if in_differing_events
            else "all of them copies of an earlier event"
        )
        return f"{self.values:,} values in {self.events:,} events; {repeats:,} repeats, {detail}"


def key_candidates(fields: Sequence[Field], events: Sequence[Event], topic: str) -> list[Key]:
    """Return the required scalar fields that are named like an id, the best first.

    Order: unique fields before others; then names for the event's own id (such as `order_id` in topic `orders`), fewer
    nesting levels, the order of fields.
    """
    different_events = len({json.dumps(event, sort_keys=True) for event in events})
    # Names for the id of the event itself, not of something it refers to.
    own_id_names = _EVENTS_OWN | {f"{name}_id" for name in _singulars(snake_case(topic.replace(".", "_")))}
    ranked = [
        (
            (name not in own_id_names, field.name.count("."), position),
            Key(field.name, len(set(field.values)), len(events), different_events),
        )
        for position, field in enumerate(fields)
        if field.required
        and field.kind in ("string", "int", "uint")
        and len(field.types) == 1
        and _ID.search(name := snake_case(field.name))
    ]
    return [key for _, key in sorted(ranked, key=lambda entry: (not entry[1].is_unique, entry[0]))]


def _singulars(topic: str) -> set[str]:
    """Return words for one event of a topic: the topic, each word in it, and all of them without a final "s"."""
    words = [word for word in topic.split("_") if word]
    names = {topic, *words}
    return names | {name.removesuffix("s") for name in names}
