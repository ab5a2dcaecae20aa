"""The error of a checkpoint that cannot be rebuilt."""

from glassflow_dagster.errors import GlassflowError

_REMEDY = (
    "continue without the state (run FILE --accept-loss), or empty the table and read the topics again (run FILE "
    "--start-over)"
)


class CannotRebuild(GlassflowError):
    """Topic, ledger and table do not determine the lost state; `remedy` tells the operator what to do instead."""

    def __init__(self, pipeline_id: str, why: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"{pipeline_id}: the state cannot be rebuilt: {why}; {remedy}")
