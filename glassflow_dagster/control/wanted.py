"""The file `wanted` in a pipeline's folder: the stream is meant to run here; a driver that has ended is restarted."""

from pathlib import Path

_NAME = "wanted"


def want(folder: Path) -> None:
    """Note that the stream is meant to run on this host; raise `OSError` where the folder cannot be written."""
    (folder / _NAME).touch()


def unwant(folder: Path) -> None:
    """Note that the stream is not meant to run on this host: it was stopped, or runs elsewhere."""
    (folder / _NAME).unlink(missing_ok=True)


def is_wanted(folder: Path) -> bool:
    """Return whether the stream is meant to run on this host."""
    return (folder / _NAME).exists()
