"""Work that waits for servers: in threads of its own, so that other requests are answered meanwhile."""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SlowWork:
    """Runs functions in at most so many threads; more of them wait."""

    def __init__(self, threads: int) -> None:
        self._limiter = CapacityLimiter(threads)

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return the function's result; raises what it raises."""
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._limiter)
