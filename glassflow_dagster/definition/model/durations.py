"""Parse and format the durations of definitions: Go's syntax, and `d` for days of 24 hours.

Source of the syntax: Go's `time.ParseDuration`, to which GlassFlow adds `d` (`"500ms"`, `"1h30m"`, `"7d"`).
"""

import re
from datetime import timedelta

_UNITS = {
    "ns": timedelta(microseconds=0.001),
    "us": timedelta(microseconds=1),
    "µs": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
# Longest unit names first, or "ms" would be read as "m" and a stray "s".
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")
DURATION_PATTERN = rf"^(?:{_PART.pattern})+$"
_WHOLE = re.compile(DURATION_PATTERN)


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `"1h30m"`; raises ValueError, with what to write, for any other text."""
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write a string such as '500ms', '30s', '1h30m' or '7d'")
    return sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())


def format_duration(duration: timedelta) -> str:
    """Return a duration as text in the largest whole units, down to milliseconds: `1h30m`."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def milliseconds(duration: timedelta) -> int:
    """Return whole milliseconds, the unit of Spark's and Kafka's settings."""
    return round(duration / timedelta(milliseconds=1))


def microseconds(duration: timedelta) -> int:
    """Return whole microseconds, the unit of Spark's timestamps."""
    return round(duration / timedelta(microseconds=1))
