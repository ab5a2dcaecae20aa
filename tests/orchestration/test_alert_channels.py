"""Where alerts are sent: what each channel delivers, and that its errors name no secret."""

import json
import re
import socketserver
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from dagster_slack import SlackResource
from slack_sdk.web.client import WebClient

from glassflow_dagster.orchestration.alerts import email as mails
from glassflow_dagster.orchestration.alerts.alert import Alert, AlertChannel, AlertUndelivered
from glassflow_dagster.orchestration.alerts.email import EmailChannel
from glassflow_dagster.orchestration.alerts.slack import SlackChannel
from glassflow_dagster.orchestration.alerts.webhook import EnvironmentWebhook, WebhookChannel
from tests.security.certificates import Authority

ALERT = Alert("orders/orders:counts_agree", "ERROR", "4 rows <missing>\nof 10")
SECRET = "s3cret-token"


def undelivered(channel: AlertChannel) -> AlertUndelivered:
    """Send an alert that is not accepted; return the error, which must hold no secret."""
    with pytest.raises(AlertUndelivered) as caught:
        channel.send(ALERT)
    assert SECRET not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("address", [f"http://127.0.0.1:1/{SECRET}", f"file:///{SECRET}"])
def test_a_webhook_that_cannot_be_reached_is_an_error_without_its_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    assert not undelivered(WebhookChannel(address)).may_accept_others
    monkeypatch.setenv("GLASSFLOW_ALERT_WEBHOOK", address)
    assert str(undelivered(EnvironmentWebhook())).startswith("GLASSFLOW_ALERT_WEBHOOK: ")


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Serve Slack's API on loopback, for Slack's own client; `answer` is what it answers, `asked` what it was sent."""
    state: dict[str, Any] = {"answer": {"ok": True}, "asked": []}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            state["asked"].append((self.path, self.headers["Authorization"], content))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(state["answer"]).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/api/"
        monkeypatch.setattr(SlackResource, "get_client", lambda self: WebClient(self.token, base_url=address))
        yield state
        server.shutdown()


def test_slack_gets_the_alert_as_a_line(slack: dict[str, Any]) -> None:
    SlackChannel("#data", SECRET).send(ALERT)
    [(path, authorization, content)] = slack["asked"]
    assert (path, authorization) == ("/api/chat.postMessage", f"Bearer {SECRET}")
    text = "ERROR: orders/orders:counts_agree: 4 rows &lt;missing&gt; of 10"
    assert json.loads(content) == {"channel": "#data", "text": text}


@pytest.mark.parametrize(("error", "others"), [("channel_not_found", True), ("ratelimited", False)])
def test_what_slack_does_not_accept_is_told_with_its_reason(slack: dict[str, Any], error: str, others: bool) -> None:
    slack["answer"] = {"ok": False, "error": error}
    problem = undelivered(SlackChannel("#data", SECRET))
    assert str(problem) == f"slack: #data: not accepted ({error})"
    assert problem.may_accept_others is others


def test_slack_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "http://127.0.0.1:1/api/"
    monkeypatch.setattr(SlackResource, "get_client", lambda self: WebClient(self.token, base_url=nowhere))
    assert not undelivered(SlackChannel("#data", SECRET)).may_accept_others


class _Mail(socketserver.StreamRequestHandler):
    """Answers one SMTP session with a login, over a connection that is encrypted already."""

    received: list[str]
    accepts_login = True

    def handle(self) -> None:
        self._say("220 ready")
        while line := self.rfile.readline().decode().strip():
            command = line.split()[0].upper()
            if command == "EHLO":
                self._say("250-test", "250 AUTH PLAIN")
            elif command == "AUTH":
                self._say("235 ok" if type(self).accepts_login else f"535 wrong {SECRET}")
            elif command == "DATA":
                self._say("354 go on")
                text = ""
                while (part := self.rfile.readline().decode()) != ".\r\n":
                    text += part
                type(self).received.append(text)
                self._say("250 ok")
            elif command == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


class _TlsServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        return self.context.wrap_socket(connection, server_side=True), address


@pytest.fixture
def smtp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[_Mail], int]]:
    """Serve SMTP over TLS on loopback, with a certificate that Dagster's function trusts."""

    class Handler(_Mail):
        received: list[str] = []  # noqa: RUF012 - of this test's own class

    authority = Authority("mail authority")
    file = tmp_path / "mail.pem"
    file.write_text(authority.sign("mail", "localhost").both)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(file)
    trusting = ssl.create_default_context(cadata=authority.certificate)
    monkeypatch.setattr("dagster._utils.alert.ssl.create_default_context", lambda: trusting)
    with _TlsServer(("127.0.0.1", 0), Handler) as server:
        server.context = server_side
        threading.Thread(target=server.serve_forever).start()
        yield Handler, server.server_address[1]
        server.shutdown()


def channel(port: int) -> EmailChannel:
    return EmailChannel("dagster@example.com", ("a@example.com", "b@example.com"), "localhost", SECRET, port=port)


def test_a_mail_has_the_check_in_its_subject_and_the_reason_as_text(smtp: tuple[type[_Mail], int]) -> None:
    handler, port = smtp
    channel(port).send(ALERT)
    [mail] = handler.received
    assert re.search(r"^Subject: ERROR: orders/orders:counts_agree\r?$", mail, re.MULTILINE)
    assert "To: a@example.com,b@example.com" in mail
    assert "4 rows &lt;missing&gt;<br>of 10" in mail


def test_a_mail_server_that_refuses_or_does_not_answer_is_told_without_the_password(
    smtp: tuple[type[_Mail], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, port = smtp
    handler.accepts_login = False
    assert str(undelivered(channel(port))) == ("email: localhost did not accept the alert (SMTPAuthenticationError)")
    assert "ConnectionRefusedError" in str(undelivered(channel(1)))
    released = threading.Event()
    monkeypatch.setitem(mails.SENDERS, "SSL", lambda *_, **__: released.wait())
    monkeypatch.setattr(mails, "ANSWER_SECONDS", 0.1)
    assert str(undelivered(channel(port))) == "email: localhost does not answer"
    released.set()
