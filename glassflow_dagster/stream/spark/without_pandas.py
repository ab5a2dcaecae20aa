"""Keeps pyspark and pyarrow from importing pandas in a process that does not need it.

pyspark's functions ask whether numpy is installed, for each argument, and find that out by importing their own package
for tests, which imports pandas and unittest. pyarrow imports pandas to ask whether a value is one of pandas'. That
takes half a second of a core at the start, and a third of the memory of a driver in a pool.
"""

import sys
from types import ModuleType

_TESTING = "pyspark.testing.utils"
_PANDAS = "pandas"


def leave_out_testing() -> None:
    """Let pyspark believe that there is no numpy, from which this project passes no values to the JVM.

    Only for a process that runs a driver and nothing else: `pyspark.testing` cannot be imported any more.
    """
    module = ModuleType(_TESTING)
    module.have_numpy = False  # type: ignore[attr-defined]
    sys.modules.setdefault(_TESTING, module)


def leave_out_pandas() -> None:
    """After `leave_out_testing`, also let pyarrow believe that there is no pandas; without it, do nothing.

    pyspark can import pandas as before: the first job with Python workers needs it.
    """
    if will_import_pandas() or _PANDAS in sys.modules:
        return
    # Only now, as a driver launches Spark's JVM before it loads pyarrow.
    import pyarrow.lib  # noqa: PLC0415

    sys.meta_path.insert(0, _Hidden)
    try:
        # pyarrow asks once in Python and once in C++, with the first value, and remembers the answers.
        is_there = pyarrow.lib._pandas_api.have_pandas  # noqa: SLF001
        pyarrow.lib.array([None])
    finally:
        sys.meta_path.remove(_Hidden)
    assert not is_there


def will_import_pandas() -> bool:
    """Return whether pyspark will import pandas with its first call of the JVM."""
    return _TESTING not in sys.modules


class _Hidden:
    """A finder of modules that does not find pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)
