"""What a driver's process does not load."""

import subprocess
import sys

PROGRAM = """
import sys
from glassflow_dagster.stream.spark.without_pandas import leave_out_pandas, leave_out_testing, will_import_pandas
import glassflow_dagster.driver.main_loop
assert will_import_pandas()
leave_out_testing()
assert not will_import_pandas()
leave_out_pandas()
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter
assert not NumpyScalarConverter().can_convert(1)
assert not NumpyArrayConverter().can_convert([1])
import pyarrow
from pyarrow import compute
assert compute.sum(pyarrow.array([1, 2])).as_py() == 3
assert pyarrow.Table.from_pylist([{"a": 1}]).column("a").to_numpy().tolist() == [1]
print("pandas" in sys.modules)
import pandas
"""


def test_neither_arguments_of_the_jvm_nor_arrow_make_a_driver_import_pandas() -> None:
    """Asked about any argument, pyspark's converters for numpy import its package for tests, and pyarrow pandas."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
