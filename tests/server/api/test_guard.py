"""Who may send: other origins, other names, wrong tokens, large bodies."""

import asyncio
import base64
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from glassflow_dagster.server.api import guard
from glassflow_dagster.server.api.api_error import ApiError
from tests.server.api.conftest import LARGEST, Api, deduplicating
from tests.support.waiting import wait_until

PIPELINE = "/api/v1/pipeline"


@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1.attacker.example", "[::2]", "[", ""])
def test_without_a_token_a_request_must_name_this_host(api: Api, host: str) -> None:
    """A name that an attacker lets point to 127.0.0.1 makes a browser send its pages' requests here."""
    for method, path in (("GET", PIPELINE), ("POST", PIPELINE), ("GET", "/api/v1/docs"), ("GET", "/api/v2/healthz")):
        answer = api.request(method, path, headers={"host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "misdirected_request")


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST", "127.0.0.1", "[::1]:{port}"])
def test_this_host_has_several_names(api: Api, host: str) -> None:
    named = host.format(port=urlsplit(api.url).port)
    assert api.get(PIPELINE, headers={"host": named}).status_code == 200


@pytest.mark.parametrize("headers", [
    {"origin": "https://attacker.example"}, {"origin": "null"}, {"origin": "http://["}, {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"},
])  # fmt: skip
@pytest.mark.parametrize("token", ["", "t0ken"])
def test_a_page_of_another_origin_changes_and_reads_nothing(
    serve: Callable[..., Api], headers: dict[str, str], token: str
) -> None:
    api = serve(token)
    authorized = {**headers, **({"authorization": f"Bearer {token}"} if token else {})}
    for method, path in (("POST", PIPELINE), ("GET", PIPELINE), ("DELETE", f"{PIPELINE}/x"), ("OPTIONS", PIPELINE)):
        answer = api.request(method, path, headers=authorized)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert "access-control-allow-origin" not in answer.headers


def test_the_own_page_may_send_and_a_link_leads_to_the_documentation(api: Api) -> None:
    own = {"origin": api.url, "sec-fetch-site": "same-origin"}
    assert api.get(PIPELINE, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert api.get("/api/v1/docs", headers=link).status_code == 200


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(api: Api, media_type: str) -> None:
    body = json.dumps(deduplicating())
    answer = api.request("POST", PIPELINE, content=body, headers={"content-type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert not api.folder.exists()


def test_every_request_but_a_probe_needs_the_token(serve: Callable[..., Api]) -> None:
    api = serve("t0ken")
    basic = base64.b64encode(b"api:t0ken").decode()
    for header in (
        None,
        "Bearer other",
        "Bearer",
        "t0ken",
        "Basic t0ken",
        "Basic !",
        f"Digest {basic}",
        "Bearer tökén",
    ):
        headers = {"authorization": header.encode()} if header else {}
        for path in (PIPELINE, "/api/v1/docs", "/api/v1/openapi.json", "/", "/nothing"):
            answer = api.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Basic")
    for path in ("/api/v1/healthz", "/api/v2/healthz"):
        assert api.get(path).status_code == 200
    # With a token any name will do: an attacker's page does not have it.
    valid = {"authorization": "Bearer t0ken", "host": "api.example"}
    assert api.get(PIPELINE, headers=valid).json() == []
    # As GlassFlow's SDK can send it, which knows an address only.
    assert httpx.get(f"{api.url.replace('//', '//api:t0ken@')}{PIPELINE}").json() == []


def test_a_large_body_is_refused_before_it_is_read(api: Api) -> None:
    address = urlsplit(api.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    connection.putrequest("POST", PIPELINE)
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(10 * LARGEST))
    connection.endheaders()
    answer = connection.getresponse()  # nothing of the body is sent
    assert (answer.status, json.load(answer)["code"]) == (413, "request_entity_too_large")
    connection.close()


def test_a_large_body_of_unknown_length_is_refused(api: Api) -> None:
    parts = (b" " * 1000 for _ in range(LARGEST // 1000 + 1))
    answer = api.request("POST", PIPELINE, content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    within = (b" " * 1000 for _ in range(LARGEST // 1000))
    answer = api.request("POST", PIPELINE, content=within, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_a_body_that_does_not_arrive_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    address = urlsplit(api.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=60) as client:
        client.sendall(
            b"POST /api/v1/pipeline HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\n\r\n{"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")


def test_the_first_half_of_a_body_is_not_taken_for_the_whole() -> None:
    """The first half of a definition in YAML may be one, too."""
    messages = [{"type": "http.request", "body": b"a: 1", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    with pytest.raises(ApiError, match="the client has gone before the body's end"):
        asyncio.run(guard.read_body(receive, 1000))


def test_unknown_paths_and_methods_have_glassflows_form(api: Api) -> None:
    for method, path, status, code in (
        ("GET", "/nothing", 404, "not_found"), ("PUT", PIPELINE, 405, "method_not_allowed"),
        ("GET", f"{PIPELINE}/x/stop", 405, "method_not_allowed"), ("GET", f"{PIPELINE}/x/history/one", 422, None),
    ):  # fmt: skip
        answer = api.request(method, path)
        assert answer.status_code == status
        assert answer.json()["status"] == status
        assert code is None or answer.json()["code"] == code


def test_a_defect_is_answered_without_a_traceback(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the details")

    monkeypatch.setattr(type(api.services.catalog), "entries", fail)
    answer = api.get(PIPELINE)
    assert answer.status_code == 500
    assert answer.json() == {"status": 500, "code": "internal_error", "message": "Internal server error"}
    wait_until(lambda: "the details" in caplog.text, "the log has the defect")


def test_answers_are_not_kept_by_browsers_and_caches(api: Api) -> None:
    for path in (PIPELINE, "/nothing", "/api/v1/docs"):
        headers = api.get(path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_the_documentation_needs_no_other_server(api: Api) -> None:
    found = api.get("/")
    assert found.headers["location"] == "/api/v1/docs"
    page = api.get("/api/v1/docs")
    assert "script" not in page.text
    assert "http" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    document = api.get("/api/v1/openapi.json").json()
    for path in document["paths"]:
        assert f"<code>{path}</code>" in page.text


def test_the_platform_is_local(api: Api) -> None:
    assert api.get("/api/v1/platform").json()["orchestrator"] == "local"
    assert api.get("/api/v1/healthz").content == b""
    assert api.get("/api/v2/healthz").json() == {"status": "ok"}
