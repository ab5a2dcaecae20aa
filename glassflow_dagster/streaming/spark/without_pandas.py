"""Keeps pyspark from importing pandas in a process that does not need it.

pyspark's functions ask whether numpy is installed, for each argument, and find that out by importing their own package
for tests. That imports pandas and unittest, which take half a second of a core at the start, and a third of the memory
of a driver in a pool.
"""

import sys
from types import ModuleType

_TESTING = "pyspark.testing.utils"


def leave_out_testing() -> None:
    """Let pyspark believe that there is no numpy, from which this project passes no values to the JVM.

    Only for a process that runs a driver and nothing else: `pyspark.testing` cannot be imported any more.
    """
    module = ModuleType(_TESTING)
    module.have_numpy = False  # type: ignore[attr-defined]
    sys.modules.setdefault(_TESTING, module)


def will_import_pandas() -> bool:
    """Return whether pyspark will import pandas with its first call of the JVM."""
    return _TESTING not in sys.modules
