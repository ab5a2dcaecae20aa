"""The command `infer`: output, the connections of a definition that it uses, and their secrets."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner, Result

from glassflow_dagster.cli import main
from tests.servers.stack import Stack
from tests.support.sending import send

SHIPPED = Path(__file__).parents[2] / "pipelines" / "sms_status.yaml"


@pytest.fixture
def topic(stack: Stack) -> str:
    name = f"t{uuid4().hex}"
    send(stack.kafka, name, [json.dumps({"id": number, "text": "x"}) for number in range(20)])
    return name


def infer(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["infer", *arguments], env=environment)


def parsed(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.stderr
    definition = yaml.safe_load(done.stdout)
    assert isinstance(definition, dict)
    return definition


def written(folder: Path, **changes: dict[str, Any]) -> Path:
    """Write the shipped definition with other connections to a file."""
    definition = yaml.safe_load(SHIPPED.read_text())
    definition["sources"][0]["connection_params"] |= changes.get("kafka", {})
    definition["sink"]["connection_params"] |= changes.get("clickhouse", {})
    file = folder / "sms_status.yaml"
    file.write_text(yaml.safe_dump(definition))
    return file


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("orders", "--pipeline-id", "a b"), "5 to 100 letters"),
        (("orders", "--brokers", ","), "write HOST:PORT"),
        (("orders", "--messages", "0"), "range"),
        ((), "Missing argument"),
        (("orders", "--message-type", "A"), "apply to --schema"),
        (("orders", "--schema", "a.proto", "--schema-registry", "http://r:1"), "not with both"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], text: str) -> None:
    done = infer(*arguments)
    assert (done.exit_code, text in done.stderr) == (2, True)


def test_an_address_that_is_none_is_told_by_the_place_where_it_was_given() -> None:
    done = infer("orders", "--clickhouse-url", "here:80x")
    assert (done.exit_code, done.stderr) == (
        1,
        "error: --clickhouse-url: is not an address; write http://user:password@host:port\n",
    )


@pytest.mark.servers
def test_the_definition_goes_to_stdout_and_what_to_do_next_to_stderr(topic: str, stack: Stack) -> None:
    done = infer(topic, "--messages", "10", "--pipeline-id", "orders", **stack.environment)
    definition = parsed(done)
    assert definition["sources"][0]["connection_params"] == {"brokers": [stack.kafka]}
    assert definition["sink"]["connection_params"] == {
        "database": "default", "host": "127.0.0.1", "port": stack.clickhouse_port, "http_port": stack.clickhouse_port,
        "username": "default", "secure": False, "password": "",
    }  # fmt: skip
    assert done.stderr == (
        "read 10 of about 20 messages; next: save the definition as pipelines/orders.yaml, review it, then: "
        "glassflow-dagster run pipelines/orders.yaml --until-caught-up\n"
    )


@pytest.mark.servers
def test_a_file_of_the_definition_is_written_only_if_there_is_one(topic: str, stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    failed = infer("no-such-topic", "--output", str(file), **stack.environment)
    assert (failed.exit_code, file.exists()) == (1, False)

    done = infer(topic, "--output", str(file), **stack.environment)
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"next: review {file}, then: glassflow-dagster run {file} --until-caught-up\n" in done.stderr
    text = file.read_text()
    assert yaml.safe_load(text)["sources"][0]["topic"] == topic

    again = infer(topic, "--output", str(file), **stack.environment)
    assert (again.exit_code, again.stderr) == (1, f"error: {file} exists; remove it, or write to another file\n")
    assert file.read_text() == text


@pytest.mark.servers
def test_a_file_that_cannot_be_written_is_one_line(topic: str, stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "orders.yaml"
    done = infer(topic, "--output", str(file), **stack.environment)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        1, f"error: {file} cannot be written (No such file or directory); name another file"
    )  # fmt: skip


@pytest.mark.servers
def test_a_password_in_an_address_is_not_printed(topic: str, stack: Stack) -> None:
    done = infer(topic, "--brokers", stack.kafka, "--clickhouse-url", "https://w:hunter2@ch/events")
    connection = parsed(done)["sink"]["connection_params"]
    assert connection["password"] == "${CLICKHOUSE_PASSWORD:-}"
    assert (connection["database"], connection["http_port"], connection["secure"]) == ("events", 8443, True)
    assert "hunter2" not in done.output
    assert "set CLICKHOUSE_PASSWORD: the definition contains no secrets" in done.stdout


@pytest.mark.servers
def test_the_connections_of_a_definition_are_used_and_its_secrets_kept(
    topic: str, stack: Stack, tmp_path: Path
) -> None:
    secrets = {"password": "hunter2", "kerberos_keytab": "aGk="}
    unused = {"username": "u", "skip_auth": True, **secrets}
    kafka = {"brokers": ["${TEST_BROKERS}"], "root_ca": "a\nb", **unused}
    source = written(tmp_path, kafka=kafka, clickhouse={"password": "${CH_PASSWORD:-x}", "database": "other"})
    done = infer(topic, "--from", str(source), TEST_BROKERS=stack.kafka)
    definition = parsed(done)
    assert definition["sources"][0]["connection_params"] == {
        "protocol": "PLAINTEXT", "mechanism": "NO_AUTH", **kafka,
        "password": "${KAFKA_PASSWORD}", "kerberos_keytab": "${KAFKA_KERBEROS_KEYTAB}",
    }  # fmt: skip
    assert definition["sink"]["connection_params"]["password"] == "${CH_PASSWORD:-x}"
    assert definition["sink"]["connection_params"]["database"] == "other"
    assert not [secret for secret in secrets.values() if secret in done.output]
    # An option overrides the file.
    other = parsed(infer(topic, "--from", str(source), "--brokers", stack.kafka, TEST_BROKERS="127.0.0.1:1"))
    assert other["sources"][0]["connection_params"] == {"brokers": [stack.kafka]}


@pytest.mark.servers
def test_a_topic_that_is_none_is_one_line(stack: Stack) -> None:
    done = infer("no-such-topic", **stack.environment)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: topic 'no-such-topic' does not exist on ")
    assert len(done.stderr.splitlines()) == 1
