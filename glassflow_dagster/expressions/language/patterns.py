"""Regular expressions: from Go's dialect, which GlassFlow's `matches` has, to Java's, which Spark runs.

Only what both read alike goes through, written so that Java reads it as Go does. A pattern that Java refused would
stop the query at its first batch, so the parts are listed that are known, not those that are not.
"""

import re
import warnings

_CLASS = r"\\[dDwWsStnrf] | \\x[0-9a-fA-F]{2} | \\[^A-Za-z0-9]"
_PART = re.compile(
    rf"""
      (?P<group>\(\?P<[A-Za-z][A-Za-z0-9]*>) | \(\?[ims]*: | \(\?[ims]+\) | \((?!\?)
    | \[\^?(?: {_CLASS} | [^\[\]\\&] | &(?!&) )+\]
    | {_CLASS} | \\[bBA]
    | \{{\d{{1,3}}(?:,\d{{0,3}})?\}}
    | (?P<end>\$)
    | [^\\\[({{]
    """,
    re.VERBOSE | re.DOTALL,
)
_MULTILINE = re.compile(r"\(\?[is]*m")


def java_pattern(pattern: str) -> str:
    """Write a pattern for Java; raises ValueError, saying what is not supported and where in the pattern."""
    parts, position = [], 0
    end = "$" if _MULTILINE.search(pattern) else r"\z"
    while position < len(pattern):
        match = _PART.match(pattern, position)
        if match is None:
            raise ValueError(f"{pattern[position : position + 10]!r} at position {position} is not supported")
        parts.append(end if match["end"] else match[0].replace("(?P<", "(?<") if match["group"] else match[0])
        position = match.end()
    _check_structure(pattern)
    # With d a line ends with \n alone, as in Go; Java knows four more ends.
    return "(?d)" + "".join(parts)


def _check_structure(pattern: str) -> None:
    """Have Python find open groups and repeats of nothing; in these parts it agrees with Java."""
    try:
        with warnings.catch_warnings():
            # Sets within sets, which Java gives a meaning of its own.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
    except (re.error, FutureWarning) as error:
        raise ValueError(str(error)) from None
