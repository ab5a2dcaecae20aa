"""TLS, SASL and client certificates on a real broker, with all three kinds of clients.

They are librdkafka (for metadata and reads), its transactional producer (for replays of dead letters), and the Java
consumer in Spark.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.client import client_settings, spark_options
from glassflow_dagster.stores.kafka.connection_errors import find_permanent_error
from glassflow_dagster.stores.kafka.errors import KafkaRefused, KafkaUnreachable, TopicForbidden
from glassflow_dagster.stores.kafka.topics import (
    Offsets,
    offsets,
    offsets_if_there,
    require_readable,
    wait_for_brokers,
    wait_for_topic,
)
from glassflow_dagster.stream.spark.spark_errors import explain_failure
from tests.security.aws_signature import ACCESS_KEY, SECRET_KEY, require_valid_signature
from tests.security.certificates import Authority
from tests.security.conftest import PASSWORD, USER, SecureBroker
from tests.support.sending import send
from tests.support.waiting import wait_until

Connect = Callable[[SecureBroker], KafkaConnection]

WAYS: dict[str, Connect] = {
    "SSL with a client's certificate": lambda broker: broker.over_tls(),
    "SASL_SSL PLAIN": lambda broker: broker.over_sasl("PLAIN"),
    "SASL_SSL SCRAM-SHA-256": lambda broker: broker.over_sasl("SCRAM-SHA-256"),
    "SASL_SSL SCRAM-SHA-512": lambda broker: broker.over_sasl("SCRAM-SHA-512"),
    "SASL_SSL OAUTHBEARER": lambda broker: broker.over_token(),
    "SASL_SSL SCRAM-SHA-512 with a client's certificate": lambda broker: broker.over_both(),
}

STRANGER = Authority("someone else's authority")
STRANGERS = STRANGER.sign("stranger")


def wrong_password(broker: SecureBroker) -> KafkaConnection:
    return broker.over_sasl("SCRAM-SHA-512", password="wrong")


def wrong_client_secret(broker: SecureBroker) -> KafkaConnection:
    return broker.over_token(client_secret="wrong")


def wrong_authority(broker: SecureBroker) -> KafkaConnection:
    return broker.over_tls(root_ca=STRANGER.certificate)


# An invalid connection, and words of its error.
REFUSED: dict[str, tuple[Connect, str]] = {
    "wrong password, PLAIN": (
        lambda broker: broker.over_sasl("PLAIN", password="wrong"),
        r"refuse user 'etl' \(.*Invalid username or password\); correct connection_params\.username",
    ),
    "wrong password, SCRAM": (
        wrong_password,
        r"refuse user 'etl' \(.*invalid credentials.*\); correct connection_params\.username",
    ),
    "mechanism that the broker does not have": (
        lambda broker: broker.over_both(mechanism="PLAIN"),
        r"refuse user 'etl' \(.*supported mechanisms: SCRAM-SHA-512\); correct .* and mechanism",
    ),
    "wrong client secret": (
        wrong_client_secret,
        r"^https://localhost:\d+/token gives no token \(.*invalid_client.*\); correct connection_params\.oauth \(",
    ),
    "unknown authority of the provider": (
        lambda broker: broker.over_token(root_ca=STRANGER.certificate),
        r"/token gives no token \(SSL certificate .*issuer.*\); set connection_params\.oauth\.root_ca",
    ),
    "wrong authority": (
        wrong_authority,
        r"localhost:\d+ shows a certificate that cannot be verified \(.*\); set connection_params\.root_ca",
    ),
    "no authority": (
        lambda broker: broker.over_sasl("PLAIN", root_ca=None),
        r"localhost:\d+ shows a certificate that cannot be verified \(.*\); set connection_params\.root_ca",
    ),
    "wrong host name": (
        lambda broker: broker.over_tls(brokers=(f"127.0.0.1:{broker.mutual}",)),
        r"127\.0\.0\.1:\d+: .*certificate is not valid for '127\.0\.0\.1'; write .* connection_params\.brokers",
    ),
    "no client's certificate": (
        lambda broker: broker.over_tls(client_cert=None, client_key=None),
        r"ask for a client's certificate \(.*\); add connection_params\.client_cert",
    ),
    "a client's certificate of someone else": (
        lambda broker: broker.over_tls(client_cert=STRANGERS.certificate, client_key=STRANGERS.key),
        r"reject the client's certificate \(.*\); set connection_params\.client_cert",
    ),
}


@pytest.fixture
def topic(secure_broker: SecureBroker) -> str:
    name = f"t{uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": secure_broker.address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


@pytest.mark.parametrize("connect", WAYS.values(), ids=WAYS.keys())
def test_all_clients_get_through(
    connect: Connect, secure_broker: SecureBroker, topic: str, spark: SparkSession
) -> None:
    connection = connect(secure_broker)
    producer = Producer({**client_settings(connection), "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"sent")
    producer.commit_transaction(30)
    # The coordinator writes the marker of the transaction after it has answered.
    wait_until(lambda: offsets(connection, topic) == {0: Offsets(0, 2)}, "the record and its marker are there")
    rows = spark.read.format("kafka").options(**spark_options(connection), subscribe=topic).load().collect()
    assert [bytes(row.value) for row in rows] == [b"sent"]


@pytest.mark.parametrize(("connect", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_permanent_errors_are_not_retried(connect: Connect, message: str, secure_broker: SecureBroker) -> None:
    waited: list[str] = []
    with pytest.raises(KafkaRefused, match=message) as raised:
        wait_for_brokers(connect(secure_broker), 20, waited.append)
    assert waited == []
    assert "\n" not in str(raised.value)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        (wrong_password, "refuse the user; correct connection_params.username"),
        (wrong_client_secret, "could not be made; spark.log beside the checkpoint has the reason"),
        (wrong_authority, "cannot verify each other's certificate; correct connection_params.root_ca"),
    ],
    ids=["wrong password", "wrong client secret", "wrong authority"],
)
def test_a_stream_that_is_refused_says_so(
    connect: Connect, message: str, secure_broker: SecureBroker, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark is the first to notice a password that is changed while a stream runs."""
    found = end_of_stream(connect(secure_broker), topic, spark, tmp_path)
    assert found.startswith("Kafka's")
    assert message in found


def test_a_token_for_someone_else_is_refused_by_the_broker(
    secure_broker: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure_broker.issuer, "audience", "someone else")
    with pytest.raises(
        KafkaRefused, match=r"refuse the token \(.*invalid_token.*\); correct connection_params\.oauth,"
    ):
        wait_for_brokers(secure_broker.over_token(), 20, print)


@pytest.mark.long
def test_a_provider_of_tokens_that_is_away_is_waited_for(
    secure_broker: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def bring_back(reason: str) -> None:
        waited.append(reason)
        secure_broker.issuer.away = False

    monkeypatch.setattr(secure_broker.issuer, "away", True)
    wait_for_brokers(secure_broker.over_token(), 60, bring_back)
    assert waited
    with pytest.raises(
        KafkaUnreachable, match=r"^http://127.0.0.1:1/token gives no token \(Failed to connect .*\); start it"
    ):
        wait_for_brokers(secure_broker.over_token(token_url="http://127.0.0.1:1/token"), 2, print)


@pytest.mark.long
def test_a_stream_renews_its_tokens(
    secure_broker: SecureBroker, topic: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a session when its token expires, unless the client has shown the next one."""
    monkeypatch.setattr(secure_broker.issuer, "lifetime", 10)
    # Clients of one JVM share a login with the same settings, and its token; this one has extensions of its own.
    connection = secure_broker.over_token(extensions={"stream": topic})
    options = {**spark_options(connection), "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**options).load().writeStream.format("memory").queryName(topic)
    query = stream.option("checkpointLocation", str(tmp_path / "renewed")).start()
    try:
        begun = secure_broker.issuer.given
        wait_until(lambda: secure_broker.issuer.given >= begun + 3, "the third token")
        send(secure_broker.address, topic, [b"after two tokens have expired"])
        wait_until(lambda: spark.table(topic).count() == 1 or query.exception(), "the record is read")
        assert query.exception() is None
    finally:
        query.stop()


def test_amazon_gets_tokens_that_are_signed_for_it_from_all_clients(
    secure_broker: SecureBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    send(secure_broker.address, topic, [b"sent"])
    connection = secure_broker.as_msk()

    assert offsets(connection, topic) == {0: Offsets(0, 1)}
    of_python = secure_broker.tokens.read_text().split()
    command = [sys.executable, "-m", "tests.security.read_topic", connection.model_dump_json(exclude_none=True), topic]
    done = subprocess.run([*command, tmp_path], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "['sent']"
    of_java = [token for token in secure_broker.tokens.read_text().split() if token not in of_python]

    assert of_python
    assert of_java
    for token in (*of_python, *of_java):
        require_valid_signature(token, "eu-central-1")


def end_of_stream(connection: KafkaConnection, topic: str, spark: SparkSession, checkpoint: Path) -> str:
    """Read a topic with Spark, and return the error of the stream."""
    options = {**spark_options(connection), "subscribe": topic, "fetchOffset.numRetries": "1"}
    options["startingOffsets"] = "earliest"
    stream = spark.readStream.format("kafka").options(**options).load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    return explain_failure(raised.value)


def grant_only(broker: SecureBroker, topic: str, user: str, operation: AclOperation) -> None:
    """Grant a user one operation on a topic, and nobody anything else; return when the broker enforces it."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    pattern = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    any_of_it = AclBindingFilter(*pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    admin.delete_acls([any_of_it])[any_of_it].result(30)
    granted = AclBinding(*pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    admin.create_acls([granted])[granted].result(30)
    wait_until(lambda: admin.describe_acls(any_of_it).result(30) == [granted], "the broker knows the rights")


def test_a_right_that_is_missing_or_revoked_is_not_waited_for(
    secure_broker: SecureBroker, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    connection = secure_broker.over_sasl("SCRAM-SHA-512")
    require_readable(connection, [topic])
    send(secure_broker.address, topic, [b"sent"])

    grant_only(secure_broker, topic, USER, AclOperation.DESCRIBE)
    assert wait_for_topic(connection, topic, 30, print)
    with pytest.raises(TopicForbidden, match=rf"{topic}' on localhost:\d+: user 'etl' may not read it; grant READ on"):
        require_readable(connection, [topic])
    message = end_of_stream(connection, topic, spark, tmp_path)
    assert "do not, or no longer, allow the user to read the topic; grant READ and DESCRIBE on it" in message

    grant_only(secure_broker, topic, "someone-else", AclOperation.READ)
    waited: list[str] = []
    with pytest.raises(TopicForbidden, match=r"user 'etl' may not see it; grant DESCRIBE and READ on the topic"):
        wait_for_topic(connection, topic, None, waited.append)
    assert waited == []
    # No data is lost, so the error must differ from that of a deleted topic.
    with pytest.raises(TopicForbidden):
        offsets_if_there(connection, topic)
    with pytest.raises(TopicForbidden):
        require_readable(connection, [topic])


@pytest.mark.parametrize(
    "text",
    [
        "sasl_ssl://b:1/bootstrap: SASL authentication error: Broker: Disconnected (after 3ms in state AUTH_REQ)",
        "sasl_ssl://b:1/bootstrap: SASL authentication error: Local: Timed out (after 3ms in state AUTH_REQ)",
        "ssl://b:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
    ],
)
def test_a_broker_that_goes_away_while_it_answers_has_refused_nothing(text: str) -> None:
    errors = [KafkaError(KafkaError._AUTHENTICATION, text)]
    assert find_permanent_error(KafkaConnection(brokers=("b:1",)), errors) is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (STRANGERS.key, r"Kafka's client cannot use them .*key values mismatch.*; correct root_ca, client_cert,"),
        ("-----BEGIN EC PRIVATE KEY-----\nMIIB\n", r"client_key: is not an unencrypted PKCS #8 key.*openssl pkcs8"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", "Kafka's client cannot use them"),
    ],
    ids=["another certificate's", "another form", "none"],
)
def test_a_key_that_cannot_be_used_is_told_before_anything_else(
    key: str, message: str, secure_broker: SecureBroker
) -> None:
    with pytest.raises(GlassflowError, match=message):
        offsets(secure_broker.over_tls(client_key=key), "any")
