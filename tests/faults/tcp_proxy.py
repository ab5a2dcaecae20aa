"""A TCP proxy in front of Kafka that cuts, refuses, slows and holds back connections."""

import selectors
import socket
import threading
import time
from contextlib import suppress

from tests.faults.doors import Door, Loopback
from tests.faults.http_proxy import reset

_CHUNK = 65_536


class TcpProxy:
    """A proxy on `port` of a door for the server at 127.0.0.1:`upstream`.

    delay: seconds by which each piece of data is held back.
    """

    def __init__(self, port: int, upstream: int, door: Door | None = None) -> None:
        self.port, self._upstream, self._door = port, upstream, door or Loopback()
        self.delay = 0.0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()
        self._left: int | None = None
        self.passed = 0
        self._listener: socket.socket | None = None
        self.accept()

    def accept(self) -> None:
        """Open the port."""
        self._listener = self._door.listen(self.port)
        threading.Thread(target=self._take, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Close the port, and reset all connections."""
        assert self._listener
        # close() alone would leave the port open while a thread waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for end in pair:
                reset(end)

    def cut_after(self, count: int) -> None:
        """Reset all connections after the server has sent this many bytes."""
        with self._lock:
            self._left = count

    @property
    def is_cut(self) -> bool:
        """Return whether the last `cut_after` has happened."""
        return self._left is None

    def hold(self) -> None:
        """Hold all data back, with all connections open."""
        self._flowing.clear()

    def release(self) -> None:
        """Let data pass again."""
        self._flowing.set()

    def close(self) -> None:
        self.release()
        self.refuse()

    def _take(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # closed by `refuse`
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream), timeout=5)
            except OSError:
                reset(client)
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            with suppress(OSError):
                while all(self._pass(key.fileobj, key.data, server) for key, _ in ready.select()):
                    pass
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            reset(end)
            end.close()

    def _pass(self, source: socket.socket, target: socket.socket, server: socket.socket) -> bool:
        data = source.recv(_CHUNK)
        time.sleep(self.delay)
        while not self._flowing.wait(0.1):
            time.sleep(0)
        if source is server and self._is_last(len(data)):
            self.cut()
            return False
        target.sendall(data)
        return bool(data)

    def _is_last(self, count: int) -> bool:
        with self._lock:
            self.passed += count
            if self._left is None:
                return False
            self._left -= count
            if self._left > 0:
                return False
            self._left = None
            return True
