"""Which variants of a test `make test` runs: the first ones. The others are marked long: `make test-long` runs them."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

# What random faults are drawn by. The same one in every run, unless this variable has another number.
FAULT_SEED = "GLASSFLOW_FAULT_SEED"


def fault_seed() -> int:
    """Return the seed of this run's faults."""
    return int(os.environ.get(FAULT_SEED, "1"))


def one_of(variants: Sequence[Any]) -> list[Any]:
    """Return a test's variants as parameters; all but the first are long."""
    return some_of(variants, 1)


def some_of(variants: Sequence[Any], count: int) -> list[Any]:
    """Return a test's variants as parameters; all after so many are long. A tuple has the values of several ones."""
    return [
        pytest.param(*(variant if isinstance(variant, tuple) else (variant,)), marks=pytest.mark.long)
        if number >= count
        else variant
        for number, variant in enumerate(variants)
    ]
