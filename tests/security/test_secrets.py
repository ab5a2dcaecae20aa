"""A pipeline with a secret in every place that accepts one: it runs, and no output shows a secret.

It also tests TLS in both directions: to a broker that requires a certificate and a password, and to a ClickHouse that
requires a certificate.
"""

import json
import os
import stat
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from glassflow_dagster.cli import main
from glassflow_dagster.control.heartbeat import read_heartbeat
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.plain_secrets import SECRETS
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_folder_definitions
from tests.e2e.support import Pipeline
from tests.local.conftest import Server
from tests.security.certificates import Authority, Certificate
from tests.security.conftest import PASSWORD, USER, SecureBroker
from tests.security.sockets import elsewhere, listening
from tests.security.terminator import tls_before
from tests.security.token_issuer import CLIENT, SECRET
from tests.support.processes import descendants
from tests.support.waiting import wait_until

CLICKHOUSE_PASSWORD = "ClickHouse-s3cret"
# The Confluent wire format: a byte 0, and the id of a schema.
FRAME = b"\0\0\0\0\1"


@dataclass(frozen=True)
class Secured:
    """A pipeline, and a unique part of each of its secrets."""

    pipeline: Pipeline
    marks: dict[str, str]
    web_page: int

    def shown(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def materialize(self) -> str:
        """Materialize the pipeline in Dagster, and return everything that Dagster stores."""
        settings = {
            "spark.ui.enabled": "true", "spark.ui.port": str(self.web_page), "spark.sql.shuffle.partitions": "1",
        }  # fmt: skip
        runner = LocalRunner(self.pipeline.state, create_table=True, spark_config=settings)
        loaded = build_folder_definitions(self.pipeline.file.parent, Orchestration(runner=runner))
        instance = dg.DagsterInstance.ephemeral()
        job = loaded.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance)
        assert result.success
        specs = [str(spec) for spec in loaded.resolve_all_asset_specs()]
        logs = [str(entry) for entry in instance.all_logs(result.run_id)]
        return "\n".join([*specs, *logs])

    def rows(self) -> list[tuple[Any, ...]]:
        return self.pipeline.query("SELECT id, n FROM {db}.events ORDER BY n")

    def found_in(self, texts: dict[str, str | bytes]) -> list[tuple[str, str]]:
        """Return the names of the secrets that a text contains, each with the text's name."""
        contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in texts.items()}
        return [
            (secret, name)
            for secret, mark in self.marks.items()
            for name, content in contents.items()
            if mark.encode() in content
        ]


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[Server]:
    """Start a server that requires a password from the pipeline's user."""
    server = Server(tmp_path, free_port())
    server.add_user(USER, password=CLICKHOUSE_PASSWORD)
    server.start()
    yield server
    server.end()


@pytest.fixture
def secured(
    clickhouse: Server,
    secure_broker: SecureBroker,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Secured]:
    pipeline = Pipeline(tmp_path, secure_broker.address, clickhouse.port)
    pipeline.write().create_topic(1)
    monkeypatch.setenv("GLASSFLOW_STATE", str(pipeline.state))
    monkeypatch.setenv("GLASSFLOW_PIPELINES", str(pipeline.file.parent))
    with tls_before(clickhouse.port, authority, tmp_path, ask_client=True) as https:
        kafka, sink, marks = _connections(secure_broker, https, authority.sign("etl"), tmp_path, monkeypatch)
        definition = yaml.safe_load(pipeline.file.read_text())
        definition["sources"][0]["connection_params"] = kafka
        definition["sources"][0]["schema_registry"] = {
            "url": "http://registry.test", "api_secret": "${REGISTRY_SECRET}", "bearer_token": "${REGISTRY_TOKEN}",
        }  # fmt: skip
        definition["sources"][0]["schema_fields"] = [
            {**field, "required": True} for field in definition["sources"][0]["schema_fields"]
        ]
        definition["sink"]["connection_params"] |= sink
        pipeline.file.write_text(yaml.safe_dump(definition))
        for key, name in (("api_secret", "REGISTRY_SECRET"), ("bearer_token", "REGISTRY_TOKEN")):
            marks[f"sources[0].schema_registry.{key}"] = f"{name}-s3cret"
            monkeypatch.setenv(name, f"{name}-s3cret")
        try:
            yield Secured(pipeline, marks, free_port())
        finally:
            stop_driver(pipeline.state, pipeline.name)


def _connections(
    broker: SecureBroker, https: int, client: Certificate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return the connections to both servers, with Kafka's secrets in files and ClickHouse's in variables."""
    secrets = folder / "secrets"
    secrets.mkdir()
    given = {"password": PASSWORD, "client_key": broker.client.key, "kerberos_keytab": "S2V5dGFiLXMzY3JldA=="}
    for name, content in given.items():
        (secrets / name).write_text(f"{content}\n")
    kafka = {
        "brokers": [f"localhost:{broker.both}"], "protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512",
        "username": USER, "root_ca": broker.authority.certificate, "client_cert": broker.client.certificate,
        **{name: f"${{file:../secrets/{name}}}" for name in given},
        "oauth": {"token_url": broker.issuer.url, "client_id": CLIENT, "client_secret": "${CLIENT_SECRET}"},
    }  # fmt: skip
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    monkeypatch.setenv("CLICKHOUSE_SECRET", CLICKHOUSE_PASSWORD)
    monkeypatch.setenv("CLICKHOUSE_KEY", client.key)
    clickhouse = {
        "host": "localhost", "port": https, "http_port": https, "secure": True,
        "username": USER, "password": "${CLICKHOUSE_SECRET}",
        "root_ca": broker.authority.certificate, "client_cert": client.certificate, "client_key": "${CLICKHOUSE_KEY}",
    }  # fmt: skip
    marks = {
        "sources[0].connection_params.password": "Kafka-s3cret",
        "sources[0].connection_params.client_key": broker.client.key.splitlines()[1],
        "sources[0].connection_params.kerberos_keytab": given["kerberos_keytab"],
        "sources[0].connection_params.oauth.client_secret": "Issuer-s3cret",
        "sink.connection_params.password": CLICKHOUSE_PASSWORD,
        "sink.connection_params.client_key": client.key.splitlines()[1],
    }
    return kafka, clickhouse, marks


def test_a_pipeline_runs_by_its_secrets_and_shows_none_of_them(secured: Secured) -> None:
    pipeline = secured.pipeline
    events = [FRAME + json.dumps({"id": f"k{n}", "n": n}).encode() for n in range(3)]
    pipeline.send([*events, FRAME + b"not JSON"], lambda _: 0)
    texts: dict[str, str | bytes] = {"dagster, at the start": secured.materialize()}
    wait_until(lambda: secured.rows() == [(f"k{n}", n) for n in range(3)], "the rows are there")
    wait_until(lambda: pipeline.ledger()["dead_letters"] == 1, "the dead letter is counted")

    texts |= {f"command line of {pid}": line for pid, line in _command_lines().items()}
    assert any(b"glassflow_dagster.driver.run" in line for line in texts.values() if isinstance(line, bytes))
    texts |= _web_pages(secured.web_page)
    beat = read_heartbeat(pipeline.state / pipeline.name)
    assert beat
    assert elsewhere(listening([beat.pid, *descendants(beat.pid)])) == {}
    for command in (
        ("validate", str(pipeline.file)), ("convert", str(pipeline.file)),
        ("status", pipeline.name), ("status", pipeline.name, "--json"), ("verify", pipeline.name),
        ("dead-letters", "list", pipeline.name), ("dead-letters", "replay", pipeline.name),
        ("table", str(pipeline.file), "--print"),
    ):  # fmt: skip
        texts[" ".join(command)] = secured.shown(*command)
    assert texts[f"dead-letters replay {pipeline.name}"].endswith("sent again: 1\n")
    texts["dagster, later"] = secured.materialize()
    texts |= _files(pipeline.state)
    tables = ("glassflow_ledger", "glassflow_dead_letters", "glassflow_replays")
    texts |= {name: str(pipeline.query(f"SELECT * FROM {{db}}.{name}")) for name in tables}
    stop_driver(pipeline.state, pipeline.name)
    texts |= {f"{name}, at the end": content for name, content in _files(pipeline.state).items()}

    assert {"definition.json", "driver.log", "spark.log", "heartbeat.json"} <= {Path(name).name for name in texts}
    assert secured.found_in(texts) == []
    # Only the pipeline's user may read the records in checkpoint and logs.
    assert stat.S_IMODE((pipeline.state / pipeline.name).stat().st_mode) == 0o700
    # Proof that the search finds secrets.
    assert {secret for secret, _ in secured.found_in({"": repr(_exposed(pipeline.file))})} == secured.marks.keys()
    # Those of an object store are not for a pipeline with a registry: tests/e2e/test_object_store.py.
    of_store = {"secret_access_key", "session_token"}
    assert {name.rpartition(".")[2] for name in secured.marks} == set(SECRETS) - of_store


def _command_lines() -> dict[str, bytes]:
    lines = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines[file.parent.name] = file.read_bytes()
        except OSError:
            continue  # it ended in the meantime
    return lines


def _web_pages(port: int) -> dict[str, str | bytes]:
    """Return the pages and the REST responses of Spark's UI with its settings and streams."""
    server = f"http://127.0.0.1:{port}"
    [application] = json.loads(_page(f"{server}/api/v1/applications"))
    programs = f"/api/v1/applications/{application['id']}"
    places = ("/environment/", "/StreamingQuery/", "/SQL/", "/SQL/execution/?id=0", "/jobs/", "/executors/")
    places += (f"{programs}/environment", f"{programs}/sql?details=true&planDescription=true")
    pages: dict[str, str | bytes] = {f"Spark's page {place}": _page(server + place) for place in places}
    assert b"spark.ui.port" in _page(f"{server}/environment/")
    return pages


def _page(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def _files(folder: Path) -> dict[str, str | bytes]:
    contents: dict[str, str | bytes] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root) / name
            try:
                contents[str(file.relative_to(folder))] = file.read_bytes()
            except OSError:
                continue  # Spark removes temporary files as it goes
    return contents


def _exposed(file: Path) -> list[str]:
    """Return the secret values that the pipeline uses."""
    config = load_pipeline(file)
    kafka, sink, registry = config.connection, config.sink.connection_params, config.source.schema_registry
    assert registry
    given = (
        kafka.password,
        kafka.client_key,
        kafka.kerberos_keytab,
        kafka.oauth and kafka.oauth.client_secret,
        sink.password,
        sink.client_key,
        registry.api_secret,
        registry.bearer_token,
    )
    return [secret.get_secret_value() for secret in given if secret]
