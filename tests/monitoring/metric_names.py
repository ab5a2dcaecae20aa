"""The names of metrics in a text."""

import re

# The tables of bookkeeping begin with glassflow_, too; in texts of metrics they stand behind a database.
_NAME = re.compile(r"(?<![\w.])glassflow_[a-z_]+")
_SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def metrics_in(text: str) -> set[str]:
    """Return the names of the metrics that a text uses; of a histogram's series that of the histogram."""
    return {_SUFFIXES.sub("", name) for name in _NAME.findall(text)}
