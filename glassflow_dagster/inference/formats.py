"""The formats of messages that can be read; a new format is one more line in READERS."""

from collections.abc import Callable, Iterable, Mapping

from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.json_events import read_json_events

READERS: Mapping[str, Callable[[Iterable[bytes | None]], Events]] = {
    "json": read_json_events,
}


def read_events(values: Iterable[bytes | None]) -> Events:
    """Return the events in message values, read in the format that fits most of them; None is a tombstone."""
    messages = list(values)
    return max((reader(messages) for reader in READERS.values()), key=lambda events: len(events.objects))
