"""What the servers for checkpoints have in common that tests run: the `state` of a definition, and one process."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.definition.model.state import State
from tests.support.waiting import wait_until

HOST = "127.0.0.1"


@dataclass(frozen=True)
class StateServer(ABC):
    """A running server. port: the one of its URLs."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    @abstractmethod
    def variables(self) -> dict[str, str]:
        """Return the environment variables by which it is found."""

    @abstractmethod
    def definition(self, place: str | None = None) -> dict[str, str]:
        """Return a definition's `state`. place: its folder or prefix; None for one of the test's own."""

    def state(self, place: str | None = None) -> State:
        return State.model_validate(self.definition(place))


@contextmanager
def running_process(
    command: Sequence[str], log: Path, answers: Callable[[], bool], variables: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server, which is killed after the block. variables: of its environment, besides those of this process."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **(variables or {})}, stdout=output, stderr=output)
        try:
            wait_until(answers, "the server answers", evidence=log.read_text)
            yield
        finally:
            process.kill()
            process.wait()
