"""Parse Go's durations, the argument of the function duration(): `1h30m`, `-1.5h`, `300ms`."""

import re
from decimal import Decimal

# Unit -> microseconds, the resolution of times.
_UNITS = {
    "ns": Decimal("0.001"),
    "us": Decimal(1),
    "µs": Decimal(1),
    "μs": Decimal(1),
    "ms": Decimal(1000),
    "s": Decimal(10**6),
    "m": Decimal(60 * 10**6),
    "h": Decimal(3600 * 10**6),
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)", re.ASCII)
# Go counts nanoseconds in 64 bits.
_MAX_MICROSECONDS = (2**63 - 1) // 1000


def microseconds(text: str) -> int:
    """Parse a duration to microseconds; raises ValueError with the reason, and with what to write."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write numbers with the units h, m, s, ms, us, as in 1h30m")
    # Group 1 is the sign; group 2 the numbers with their units, or 0.
    total = sum((Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(match[2])), Decimal())
    if total != total.to_integral_value():
        raise ValueError(f"{text!r} is finer than a microsecond, the resolution of times")
    if total > _MAX_MICROSECONDS:
        raise ValueError(f"{text!r} is longer than 292 years, which is the longest duration")
    return int(-total if match[1] == "-" else total)
