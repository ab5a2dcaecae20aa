"""References to variables in the texts of a definition: `${VAR}` and `${VAR:-default}`."""

import re

VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def holds_variable(text: str) -> bool:
    """Whether a text refers to a variable."""
    return VARIABLE.search(text) is not None
