"""Go's durations, as the function duration() takes them: `1h30m`, `-1.5h`, `300ms`."""

import re
from decimal import Decimal

# How many microseconds each unit has; times count them, so a duration is no finer.
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
_GREATEST = (2**63 - 1) // 1000


def microseconds(text: str) -> int:
    """Read a duration; raises ValueError, saying what is wrong with the text."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError(f"{text!r} is no duration; write numbers with the units h, m, s, ms, us, as in 1h30m")
    found = sum((Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(whole[2])), Decimal())
    if found != found.to_integral_value():
        raise ValueError(f"{text!r} is finer than a microsecond, which times here do not count")
    if found > _GREATEST:
        raise ValueError(f"{text!r} is longer than 292 years, which is the longest duration")
    return int(-found if whole[1] == "-" else found)
