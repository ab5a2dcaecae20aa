"""Connections of the environment that replace those of a definition."""

import json
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.errors import GlassflowError
from tests.definition.test_load import definition, write


def connections(**servers: Any) -> dict[str, str]:
    return {"GLASSFLOW_CONNECTIONS": json.dumps(servers)}


def test_only_the_given_keys_are_replaced(tmp_path: Path) -> None:
    file = write(tmp_path, definition())
    before = load_pipeline(file, {})
    kafka = {"brokers": ["b:9093"], "protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "p"}
    after = load_pipeline(file, connections(kafka=kafka, clickhouse={"database": "ops"}))
    assert (after.connection.brokers, after.connection.protocol) == (("b:9093",), "SASL_SSL")
    assert after.connection.password
    assert after.connection.password.get_secret_value() == "p"
    assert after.sink.connection_params.database == "ops"
    assert after.sink.connection_params.host == before.sink.connection_params.host
    assert after.digest == before.digest
    assert after.fingerprint != before.fingerprint


def test_the_servers_of_the_embedded_stack_win(tmp_path: Path) -> None:
    environment = {**connections(kafka={"brokers": ["a:1"]}), "GLASSFLOW_KAFKA_BROKERS": "b:1"}
    assert load_pipeline(write(tmp_path, definition()), environment).connection.brokers == ("b:1",)


@pytest.mark.parametrize("text", ["[", "[]", '{"kafka": 3}', '"x"'])
def test_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(GlassflowError, match="GLASSFLOW_CONNECTIONS: is not JSON such as"):
        load_pipeline(write(tmp_path, definition()), {"GLASSFLOW_CONNECTIONS": text})


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ({"kafkas": {}}, r"GLASSFLOW_CONNECTIONS.kafkas: unknown key; did you mean 'kafka'"),
        ({"clickhouse": {"hots": "x"}}, r"GLASSFLOW_CONNECTIONS.clickhouse.hots: unknown key; did you mean 'host'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path, servers: Any, problem: str) -> None:
    with pytest.raises(GlassflowError, match=problem):
        load_pipeline(write(tmp_path, definition()), connections(**servers))


def test_a_value_that_does_not_fit_is_refused_at_its_path(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"connection_params\.protocol"):
        load_pipeline(write(tmp_path, definition()), connections(kafka={"protocol": "TLS"}))
