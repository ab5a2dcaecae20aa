"""What Dagster loads: everything below `defs/`."""

from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError


@dg.definitions
def defs() -> dg.Definitions:
    """Load the project's definitions; a mistake in a pipeline's definition is shown as it is.

    Dagster wraps it into the tree of its components, which is not where the mistake is.
    """
    try:
        return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    except Exception as error:
        # What Dagster raises here has no public class.
        if isinstance(error.__cause__, GlassflowError):
            raise error.__cause__.with_traceback(None) from None
        raise
