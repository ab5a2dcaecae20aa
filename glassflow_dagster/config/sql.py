"""What a definition's own SQL calls, as far as that can be told without a server."""

import re

# Functions that give the same row another value in a repetition, or on another server.
_CHANGING = re.compile(
    r"(?i)\b(rand\w*|generate\w+|now\w*|today|yesterday|current_?(?:timestamp|date)|hostName|fqdn|serverUUID|queryID|"
    r"uptime|blockNumber|rowNumber\w+|runningDifference\w*|dict\w+|joinGet\w*)\s*\("
)


def changing_function(expression: str) -> str:
    """Name a function in an expression that gives the same row another value later; nothing where there is none."""
    found = _CHANGING.search(expression)
    return f"{found[1]}()" if found else ""
