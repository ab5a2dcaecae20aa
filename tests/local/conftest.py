"""ClickHouse servers of single tests on free ports; each is stopped by its own process id."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.local.ports import free_port
from tests.support.waiting import wait_until

_USERS = """<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users>{users}</users></clickhouse>"""
_USER = (
    "<{name}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>"
    "<profile>default</profile><quota>default</quota>{grants}</{name}>"
)


@dataclass
class Server:
    """An embedded ClickHouse in a process of its own."""

    data: Path
    port: int
    native_port: int | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def add_user(self, name: str, *, password: str = "", grants: Sequence[str] = ()) -> None:
        """Add a user before the start, besides `default`, which has all rights and no password.

        grants: statements; without any the user has all rights, too.
        """
        granted = "".join(f"<query>{statement}</query>" for statement in grants)
        others = _USER.format(name=name, password=password, grants=f"<grants>{granted}</grants>" if grants else "")
        users = _USER.format(name="default", password="", grants="") + others
        (self.data / "users.xml").write_text(_USERS.format(users=users))

    def start(self) -> None:
        module = "glassflow_dagster.local.embedded_clickhouse"
        command = [sys.executable, "-m", module, "--data", str(self.data), "--port", str(self.port)]
        command += ["--native-port", str(self.native_port)] if self.native_port else []
        self.process = subprocess.Popen(command)
        wait_until(self._answers, "the server answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(self.url + "ping", timeout=1) as answer:  # the server's own address
                return bool(answer.read() == b"Ok.\n")
        except (urllib.error.URLError, OSError):
            return False

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the server by a signal."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(30)

    def client(self, **options: object) -> Client:
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.port, **options)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("clickhouse"), free_port())
    server.start()
    yield server
    server.end()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = server.client()
    yield client
    client.close()
