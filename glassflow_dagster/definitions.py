"""Dagster's entry point: loads everything below `defs/`."""

from pathlib import Path

import dagster as dg

from glassflow_dagster.errors import GlassflowError


@dg.definitions
def defs() -> dg.Definitions:
    """Load Dagster's definitions; raises the error of an invalid pipeline definition without Dagster's wrapping.

    Dagster wraps the error in one about its component tree, which would hide the message.
    """
    try:
        return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    except Exception as error:
        # GlassflowError: a mistake in a pipeline definition. The class that Dagster raises here is not public.
        if isinstance(error.__cause__, GlassflowError):
            raise error.__cause__.with_traceback(None) from None
        raise
