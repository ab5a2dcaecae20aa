r"""Check the patterns of `matches`, which are Go's regular expressions, without a JVM.

At run time RE2/J matches them (stream/scala/functions/GoPattern.scala).

Google's RE2 accepts the same syntax as Go, except for what this module corrects. Go wrote
tests/stream/expressions/patterns.json, which tests both engines. Neither knows Go 1.25's long names of Unicode
categories, such as \p{Letter}.
"""

import re

import re2

# Go's own limit of nested groups.
_MAX_GROUP_DEPTH = 1000
# Bytes of a compiled pattern. RE2's default of 8 MiB is too small for patterns that Go accepts, such as \pL{1000}.
_MEMORY = 1 << 28

# Tokenizer of patterns; for patterns that RE2 accepts.
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
    """Return a Go pattern in the syntax of RE2/J; raises ValueError with the reason when Go does not accept it."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        # Half a surrogate pair raises UnicodeEncodeError, which is a ValueError with its reason.
        re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from None
    parts, depth = [], 0  # depth: the number of open groups
    for part in _PART.finditer(pattern):
        if part["byte"]:
            # One byte, even of a multi-byte character: RE2 accepts it, Go does not.
            raise ValueError(r"invalid escape sequence: \C")
        depth += bool(part["opening"]) - bool(part["closing"])
        if depth >= _MAX_GROUP_DEPTH:
            raise ValueError(f"more than {_MAX_GROUP_DEPTH - 1} groups inside each other")
        # RE2/J rejects duplicate group names, so names are removed. It takes a literal brace, as in `{+`, for a repeat
        # count, so such a brace is escaped.
        parts.append(r"\{" if part["brace"] else "(" if part["name"] else part[0])
    return "".join(parts)
