"""Whether a server of a test answers."""

from glassflow_dagster.runtime import direct


def answers(url: str) -> bool:
    """Return whether a GET of a URL is answered, other than by an error."""
    try:
        with direct.opener.open(url, timeout=5):
            return True
    except OSError:
        return False
