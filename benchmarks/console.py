"""Console output of the benchmarks."""

import sys


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)
