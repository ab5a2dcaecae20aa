r"""Patterns of `matches`: Go's regular expressions, checked here without a JVM.

At run time RE2/J matches them (streaming/scala/functions/GoPattern.scala).

Google's RE2 reads what Go reads, but for what this module corrects; tests/expressions/patterns.json, written by Go,
holds both engines to it. Go 1.25's longer names of Unicode categories, such as \p{Letter}, are unknown to them.
"""

import re

import re2

# Go's own bound on how deep groups nest.
_DEEPEST_GROUP = 1000
# For what a pattern becomes, in bytes. RE2's own 8 MiB are too few for patterns that Go takes, such as \pL{1000}.
_MEMORY = 1 << 28

# A pattern cut into what has a meaning together; only for patterns that RE2 takes.
_PART = re.compile(
    r"""
      (?P<quoted>\\Q.*?(?:\\E|\Z))
    | (?P<byte>\\C)
    | \\[pPx]\{[^}]*\} | \\.
    | \[\^?\]?(?:\[:\^?\w+:\] | \\. | [^\]\\])*\]
    | \{\d+(?:,\d*)?\}
    | (?P<brace>\{)
    | (?P<opening>\((?P<name>\?P?<[^>]+>)?)
    | (?P<closing>\))
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def engine_pattern(pattern: str) -> str:
    """Return a pattern as RE2/J runs it; raises ValueError, with the reason, for one that Go does not take."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        # A half of a surrogate pair is a UnicodeEncodeError, which is a ValueError with its reason.
        re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from None
    parts, depth = [], 0
    for part in _PART.finditer(pattern):
        if part["byte"]:
            # Half a character: only RE2 itself has it.
            raise ValueError(r"invalid escape sequence: \C")
        depth += bool(part["opening"]) - bool(part["closing"])
        if depth >= _DEEPEST_GROUP:
            raise ValueError(f"more than {_DEEPEST_GROUP - 1} groups inside each other")
        # RE2/J refuses a name that stands twice, and reads a brace that begins no repeat count as if it did in `{+`.
        parts.append(r"\{" if part["brace"] else "(" if part["name"] else part[0])
    return "".join(parts)
