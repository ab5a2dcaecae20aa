"""The command: its options, what it refuses to start with, TLS, and its end."""

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from glassflow_dagster.cli import main
from glassflow_dagster.local.ports import free_port
from tests.security.certificates import Authority
from tests.support.waiting import DEADLINE, wait_until


class Command:
    """A running `api`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "api.log"
        command = [sys.executable, "-m", "glassflow_dagster", "api", "--port", "0"]
        command += ["--pipelines", str(folder / "pipelines"), "--state", str(folder / "state"), *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLOW_")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def url(self) -> str:
        def address() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(r"^api: (https?://\S+:\d+)/api/v1/docs for ", self.log.read_text(), re.MULTILINE)

        found: re.Match[str] = wait_until(address, "the API listens", evidence=self.log.read_text)
        return found[1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def begin(*options: str) -> Command:
        started.append(Command(tmp_path, *options))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.wait(DEADLINE)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])  # noqa: S104 - which is refused
def test_other_hosts_are_not_served_without_a_token(host: str) -> None:
    found = CliRunner().invoke(main, ["api", "--host", host])
    assert found.exit_code == 1
    assert f"--host {host}: other hosts could send without a token; add --token-file FILE" in found.stderr


def test_certificate_and_key_belong_together() -> None:
    found = CliRunner().invoke(main, ["api", "--tls-cert", "cert.pem"])
    assert found.exit_code == 2
    assert "--tls-cert and --tls-key belong together; give both" in found.stderr


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "glassflow_dagster.server.api.serve", None)
    found = CliRunner().invoke(main, ["api"])
    assert found.exit_code == 1
    assert "run: pip install 'glassflow-dagster[api]'" in found.stderr


@pytest.mark.parametrize(("content", "reason"), [(None, "cannot be read"), (b" \n", "is empty")])
def test_a_token_file_holds_a_token(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    found = CliRunner().invoke(main, ["api", "--token-file", str(file)])
    assert found.exit_code == 1
    assert f"--token-file {file}: {reason}" in found.stderr


def test_a_port_that_is_taken_and_a_certificate_that_is_none_end_the_start(tmp_path: Path) -> None:
    import socket

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        found = CliRunner().invoke(main, ["api", "--port", str(port)])
    assert found.exit_code == 1
    assert f"api: cannot listen on 127.0.0.1:{port}" in found.stderr
    none = tmp_path / "none.pem"
    none.write_text("x")
    found = CliRunner().invoke(main, ["api", "--port", "0", "--tls-cert", str(none), "--tls-key", str(none)])
    assert found.exit_code == 1
    assert f"--tls-cert {none}, --tls-key {none}: cannot be used" in found.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(start: Callable[..., Command], number: signal.Signals) -> None:
    command = start()
    assert httpx.get(f"{command.url()}/api/v1/pipeline").json() == []
    command.process.send_signal(number)
    assert command.process.wait(DEADLINE) == 0
    assert "api: ended; the pipelines go on" in command.log.read_text()


def test_other_hosts_are_served_with_a_token_over_tls(start: Callable[..., Command], tmp_path: Path) -> None:
    authority = Authority("the tests' authority")
    signed = authority.sign("api", "localhost")
    certificate, key, token = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "token"
    certificate.write_text(signed.certificate)
    key.write_text(signed.key)
    token.write_text("s3cret\n")
    options = ("--host", "0.0.0.0", "--token-file", str(token))  # noqa: S104 - what is tested
    command = start(*options, "--tls-cert", str(certificate), "--tls-key", str(key))
    url = command.url().replace("0.0.0.0", "localhost")  # noqa: S104
    context = ssl.create_default_context(cadata=authority.certificate)
    assert httpx.get(f"{url}/api/v1/pipeline", verify=context).status_code == 401
    headers = {"authorization": "Bearer s3cret"}
    assert httpx.get(f"{url}/api/v1/pipeline", verify=context, headers=headers).json() == []
    unencrypted = start(*options)
    unencrypted.url()
    assert "warning: token and secrets are sent without encryption" in unencrypted.log.read_text()
