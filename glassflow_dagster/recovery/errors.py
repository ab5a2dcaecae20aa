"""What keeps a checkpoint from being rebuilt."""

from glassflow_dagster.errors import GlassflowError

_ANEW = (
    "go on without the state (run FILE --accept-loss), or empty the table and read the topics anew (run FILE "
    "--start-over)"
)


class CannotRebuild(GlassflowError):
    """What is left does not tell what the state knew; `remedy` is what a person can do instead."""

    def __init__(self, pipeline_id: str, why: str, remedy: str = _ANEW) -> None:
        super().__init__(f"{pipeline_id}: the state cannot be rebuilt: {why}; {remedy}")
