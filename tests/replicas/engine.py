"""The engine in the chdb wheel as a ClickHouse server with replicated tables: `python -m tests.replicas.engine`.

The wheel's clickhouse-local has Keeper's client and the engines `Replicated...MergeTree`, but no interserver interface,
by which replicas fetch each other's parts: its address and its credentials are unknown, and its listener is never made.
So three places of its code are replaced in memory, of one build only; any other is refused. For tests alone: no product
code depends on this.

FOLDER/config.xml names `http_port`, which must be that of the interserver interface too, and listens on 127.0.0.1 and
on the host of that interface, with `listen_try`.
"""

import argparse
import ctypes
import os
import platform
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from glassflow_dagster.local.embedded_clickhouse import KEEP_ALIVE, load_engine
from glassflow_dagster.runtime import direct

# The system whose wheel has the code below, and the one of this process.
SYSTEM = "Linux x86_64"
THIS_SYSTEM = f"{platform.system()} {platform.machine()}"
_BUILD = f"chdb-core 26.9.0 on {SYSTEM}"
_PAGE = 4096
_READ_WRITE_EXECUTE, _READ_EXECUTE = 7, 5

# Addresses in the extension of chdb-core 26.9.0 for x86_64, found by disassembling the functions that throw
# "parameter 'interserver_http(s)_host'..." and that compare a handler's name with "interserver".
# Context::getInterserverIOAddress(), returning a string and a port; and the bytes that it begins with.
_GET_ADDRESS, _ADDRESS_CODE = 0x147217C0, bytes.fromhex("4156534883ec484c8b36490fbe")
# Context::getInterserverCredentials(), returning a shared pointer.
_GET_CREDENTIALS, _CREDENTIALS_BYTES = 0x14721740, 12
# The jump in createHandlerFactory() that chooses between the handlers for clients and those for replicas.
_CHOICE, _FOR_CLIENTS, _FOR_REPLICAS = 0x190973C0, bytes.fromhex("0f84eb020000"), bytes.fromhex("0f8480000000")

# libc++ keeps so many bytes of a string in the string itself.
_SHORT_STRING = 22
_LISTEN = "SYSTEM START LISTEN HTTP"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.replicas.engine", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with config.xml; the data go there")
    parser.add_argument("host", help="address at which other replicas reach this one, of the loopback network")
    parser.add_argument("port", type=int, help="the port of config.xml")
    arguments = parser.parse_args()
    found = f"chdb-core {version('chdb-core')} on {THIS_SYSTEM}"
    if found != _BUILD:
        parser.error(f"needs {_BUILD}, whose code it changes; here is {found}")
    os.chdir(arguments.folder)
    code = _Code()
    code.replace(_GET_ADDRESS, _ADDRESS_CODE, _address_code(arguments.host, arguments.port))
    _allow_no_credentials(code)
    placeholder = _hold(arguments.host, arguments.port)
    threading.Thread(target=_listen_for_replicas, args=(code, placeholder, arguments.port), daemon=True).start()
    code.engine.query(f"{_LISTEN}; {KEEP_ALIVE}", "TabSeparated", path=str(arguments.folder / "data"))


class _Code:
    """The engine's code in memory."""

    def __init__(self) -> None:
        self.engine = load_engine()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._base = _loaded_at(os.path.realpath(str(self.engine.__file__)))

    def at(self, address: int, count: int) -> bytes:
        """Return the bytes at an address of the extension."""
        return ctypes.string_at(self._base + address, count)

    def replace(self, address: int, expected: bytes, code: bytes) -> None:
        """Replace code, which must begin with the expected bytes."""
        assert self.at(address, len(expected)) == expected, f"other code at {address:x}"
        begin = self._base + address
        page = begin & ~(_PAGE - 1)
        for rights in (_READ_WRITE_EXECUTE, _READ_EXECUTE):
            assert self._libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * _PAGE), rights) == 0, "mprotect"
            if rights == _READ_WRITE_EXECUTE:
                ctypes.memmove(begin, code, len(code))

    @contextmanager
    def replaced(self, address: int, expected: bytes, code: bytes) -> Iterator[None]:
        """Replace code while the block runs."""
        self.replace(address, expected, code)
        try:
            yield
        finally:
            self.replace(address, code, expected)


def _loaded_at(path: str) -> int:
    """Return the address at which this process has a library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(path):
            place, _, offset = line.split()[:3]
            return int(place.split("-")[0], 16) - int(offset, 16)
    raise AssertionError(f"{path} is not loaded")


def _address_code(host: str, port: int) -> bytes:
    """Return code that answers with an address, and notes in the context that the scheme is http."""
    name = host.encode()
    assert len(name) <= _SHORT_STRING
    text = name.ljust(_SHORT_STRING + 1, b"\0") + bytes([len(name)])
    # mov rax, eight bytes of the text; mov [rdi + at], rax
    words = b"".join(b"\x48\xb8" + text[at : at + 8] + b"\x48\x89\x47" + bytes([at]) for at in (0, 8, 16))
    return b"".join((
        words,
        b"\x66\xc7\x47\x18" + struct.pack("<H", port),  # mov word [rdi + 24], port
        b"\x48\x8b\x0e",  # mov rcx, [rsi]: what contexts share
        b"\xc7\x81\x70\x01\x00\x00http" + b"\xc6\x81\x87\x01\x00\x00\x04",  # its scheme: four bytes and their number
        b"\x48\x89\xf8\xc3",  # mov rax, rdi; ret
    ))  # fmt: skip


def _allow_no_credentials(code: _Code) -> None:
    """Let the engine take requests of replicas without a user, and send such requests."""
    empty = ctypes.create_string_buffer(48)  # two empty strings: the one allowed user and its password
    at = ctypes.addressof(empty)
    # Two empty strings, and a vector with that pair.
    credentials = ctypes.create_string_buffer(bytes(48) + struct.pack("<QQQ", at, at + 48, at + 48), 256)
    _KEPT.extend((empty, credentials))
    # mov rax, address; xor edx, edx; ret: a shared pointer that counts nothing
    returns = b"\x48\xb8" + struct.pack("<Q", ctypes.addressof(credentials)) + b"\x31\xd2\xc3"
    code.replace(_GET_CREDENTIALS, code.at(_GET_CREDENTIALS, _CREDENTIALS_BYTES), returns)


# What the changed code points to lives as long as the process.
_KEPT: list[ctypes.Array[ctypes.c_char]] = []


def _hold(host: str, port: int) -> socket.socket:
    """Take a port, so that the engine cannot listen there for clients."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, port))
    found.listen(1)
    return found


def _listen_for_replicas(code: _Code, placeholder: socket.socket, port: int) -> None:
    """When the engine listens for clients, free the held port, and let it listen there for replicas."""
    clients = f"http://127.0.0.1:{port}/"
    while True:
        try:
            direct.opener.open(f"{clients}ping", timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    placeholder.close()
    with code.replaced(_CHOICE, _FOR_CLIENTS, _FOR_REPLICAS):
        direct.opener.open(clients, data=_LISTEN.encode(), timeout=30).close()


if __name__ == "__main__":
    main()
