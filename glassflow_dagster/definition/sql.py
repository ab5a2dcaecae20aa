"""Inspect the SQL expressions of a definition, without a server."""

import re

# Functions whose value for the same row differs in a repeated insert, or on another server.
_CHANGING = re.compile(
    r"(?i)\b(rand\w*|generate\w+|now\w*|today|yesterday|current_?(?:timestamp|date)|hostName|fqdn|serverUUID|queryID|"
    r"uptime|blockNumber|rowNumber\w+|runningDifference\w*|dict\w+|joinGet\w*)\s*\("
)


def changing_function(expression: str) -> str:
    """Return the first function of an expression whose value for the same row may change, such as `now()`; else ''."""
    match = _CHANGING.search(expression)
    return f"{match[1]}()" if match else ""
