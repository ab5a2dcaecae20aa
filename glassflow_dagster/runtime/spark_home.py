"""The installed pyspark, found without importing it."""

from importlib.util import find_spec
from pathlib import Path

from glassflow_dagster.errors import GlassflowError


def pyspark_folder() -> Path:
    """Return the folder in which pyspark is installed; raise `GlassflowError` when it is not."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise GlassflowError("pyspark is not installed; run: pip install glassflow-dagster")
    return Path(spec.origin).parent
