"""The tutorial on brokers that ask for passwords or tokens, with its own commands on a broker that asks for tokens."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import clickhouse_connect
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.definition.model.connections import KafkaConnection
from tests.security.conftest import SecureBroker
from tests.security.token_issuer import CLIENT, SCOPE, SECRET
from tests.servers.stack import Stack
from tests.support.sending import send

_PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "brokers.md").read_text()
_BLOCKS = re.findall(r"```(\w+)\n(.*?)```", _PAGE, re.DOTALL)
_DEFINITION, *_OTHERS = [text for language, text in _BLOCKS if language == "yaml"]
_COMMANDS = [text.strip() for language, text in _BLOCKS if language == "sh" and "payments" in text]
_EVENTS = 30


@pytest.fixture
def folder(secure_broker: SecureBroker, stack: Stack, tmp_path: Path) -> Path:
    """Return a folder with the page's definition for the tests' servers; the topic has each event twice."""
    topic = f"payments{uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": secure_broker.address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    payments = [json.dumps({"payment_id": f"p{number}", "cents": number}) for number in range(_EVENTS)]
    send(secure_broker.address, topic, payments * 2)

    definition = yaml.safe_load(_DEFINITION)
    [source], sink = definition["sources"], definition["sink"]
    connection = source["connection_params"]
    assert set(connection["oauth"]) == {"token_url", "client_id", "client_secret", "scope", "extensions"}
    assert connection["oauth"]["scope"] == SCOPE
    source["topic"] = sink["table"] = topic
    connection |= {"brokers": [f"localhost:{secure_broker.token}"], "root_ca": secure_broker.authority.certificate}
    connection["oauth"] |= {
        "token_url": secure_broker.issuer.url, "client_id": CLIENT, "root_ca": secure_broker.authority.certificate,
    }  # fmt: skip
    sink["connection_params"]["port"] = stack.clickhouse_port
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "payments.yaml").write_text(yaml.safe_dump(definition))
    return tmp_path


@pytest.mark.long
def test_its_commands_do_what_they_say(folder: Path, stack: Stack) -> None:
    topic = yaml.safe_load((folder / "pipelines" / "payments.yaml").read_text())["sources"][0]["topic"]
    infer, run, refused = _COMMANDS

    proposed = _run(infer.replace("infer payments ", f"infer {topic} "), folder)
    assert proposed.returncode == 0, proposed.stderr
    declared = yaml.safe_load(proposed.stdout)["sources"][0]
    assert [(field["name"], field["type"]) for field in declared["schema_fields"]] == [
        ("payment_id", "string"), ("cents", "int"),
    ]  # fmt: skip
    assert SECRET not in proposed.stdout + proposed.stderr

    done = _run(run, folder)
    assert done.returncode == 0, done.stderr
    totals = json.loads(done.stdout.splitlines()[-1])
    assert (totals["read"], totals["written"], totals["duplicates"]) == (2 * _EVENTS, _EVENTS, _EVENTS)
    with clickhouse_connect.get_client(dsn=stack.clickhouse) as client:
        assert client.query(f"SELECT count(), sum(cents) FROM {topic}").result_rows == [(_EVENTS, sum(range(_EVENTS)))]

    failed = _run(refused, folder)
    assert failed.returncode == 1
    [expected] = re.findall(r"^error: https://login\.example\.com/oauth2/token (.*)$", _PAGE, re.MULTILINE)
    [error] = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert re.sub(r"error: https://localhost:\d+/token ", "", error) == expected


@pytest.mark.parametrize("text", _OTHERS)
def test_the_connections_of_other_providers_are_right(text: str) -> None:
    keys = yaml.safe_load(text)
    assert KafkaConnection.model_validate(keys).brokers == tuple(keys["brokers"])


def _run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of the page, with variables before it, as a shell does."""
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    assert words[len(variables)] == "glassflow-dagster"
    return subprocess.run(
        [sys.executable, "-m", "glassflow_dagster", *words[len(variables) + 1 :]],
        cwd=folder, env={**os.environ, "KAFKA_CLIENT_SECRET": SECRET, **variables},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
