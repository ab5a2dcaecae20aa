"""Requests with bodies and parameters that nobody would send: each is answered, and none with a defect."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassflow_dagster.server.api.guard import HEALTH
from tests.server.api.conftest import Api, deduplicating

# Texts with control characters, half surrogate pairs, and what paths, SQL and references are made of.
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "..", "../..", "orders-clean", "'", "\x00", "\ud800", "${HOME}", "${file:/etc/passwd}", "********"]
    ),
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.just(10**400), st.just(-1), st.just(2**63))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


def operations(api: Api) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and operation of everything that the OpenAPI document has."""
    document = api.get("/api/v1/openapi.json").json()
    return [
        (method.upper(), path, {**operation, "components": document.get("components", {})})
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path not in HEALTH
    ]


def keys_of_body(operation: dict[str, Any]) -> list[str]:
    """Return the keys that an operation's body may have; those of a definition where it is one."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    if name:
        return [*operation["components"]["schemas"][name]["properties"]]
    return [*deduplicating()] if content else []


@pytest.mark.timeout(600)
@settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(data=st.data())
def test_no_request_meets_a_defect(api: Api, data: st.DataObject) -> None:
    """503 and 501 are answers: a server does not answer, and a feature is not there."""
    if not (api.folder / "orders-clean.yaml").exists():
        api.write(deduplicating())
    method, path, operation = data.draw(st.sampled_from(operations(api)), label="operation")
    for name in ("pipeline_id", "version"):
        path = path.replace(f"{{{name}}}", quote(data.draw(TEXTS, label=name).encode(errors="replace"), safe="") or "x")
    keys = keys_of_body(operation)
    body: Any = None
    if keys:
        base = deduplicating() if "sources" in keys and data.draw(st.booleans(), label="by a valid one") else {}
        changed = st.dictionaries(st.sampled_from(keys), VALUES, max_size=4)
        body = data.draw(st.one_of(changed.map(lambda change: {**base, **change}), VALUES), label="body")
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = {name: data.draw(TEXTS, label=name).encode(errors="replace") for name in names if data.draw(st.booleans())}
    content = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"} if content is not None else {}
    answer = api.request(method, path, params=query, content=content, headers=headers)
    assert answer.status_code < 500 or answer.status_code in {501, 503}, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        assert {"status", "code", "message"} <= answer.json().keys()
