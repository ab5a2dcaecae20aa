"""A real object store for tests: versitygw, as `stack up --object-store` starts it."""

import select
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.local.object_store import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    object_store_answers,
    object_store_variables,
    prepare_object_store,
)
from tests.servers.state_server import StateServer, running_process


@dataclass(frozen=True)
class ObjectStoreServer(StateServer):
    """A running store. data: the folder of its buckets."""

    data: Path

    @property
    def variables(self) -> dict[str, str]:
        return object_store_variables(self.port)

    def definition(self, place: str | None = None) -> dict[str, str]:
        return {
            "url": f"s3a://{BUCKET}/{place or uuid.uuid4().hex}",
            "endpoint": self.endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }


@contextmanager
def running_object_store(data: Path, port: int) -> Iterator[ObjectStoreServer]:
    """Run a store while the block runs; its data stay, so that another one can go on with them."""
    store, log = prepare_object_store(data, port, print), data.parent / "object-store.log"
    with running_process(store.command, log, lambda: object_store_answers(port), store.variables):
        yield ObjectStoreServer(port, data)


class LosingProxy:
    """A proxy to a store that loses the store's answer to the next PUTs: the store has done what was asked for."""

    def __init__(self, port: int) -> None:
        """Listen. port: of the store."""
        self._upstream = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        # How many answers are still to be lost, and how many were.
        self.to_lose = self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._upstream) as server:
            is_put = False
            while ready := select.select([client, server], [], [])[0]:
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client:
                        is_put = data.startswith(b"PUT ") or (is_put and b" HTTP/1.1\r\n" not in data)
                    elif is_put and self.to_lose and data.startswith(b"HTTP/1.1 20"):
                        self.to_lose -= 1
                        self.lost += 1
                        return
                    (server if source is client else client).sendall(data)
