"""What a benchmark tells while it runs."""

import sys


def say(text: str) -> None:
    """Tell how far the benchmark is."""
    print(text, file=sys.stderr, flush=True)
