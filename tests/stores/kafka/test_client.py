"""Settings of a connection for librdkafka and for Java, without a broker."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.certificates import read_pem
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.kafka_settings import PASSED_ON
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.client import client_settings, java_options, spark_options
from glassflow_dagster.stores.kafka.consumer import open_consumer

AWKWARD = 'p"\\;'
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def connection(**parts: Any) -> KafkaConnection:
    return KafkaConnection.model_validate({"brokers": ("a:1", "b:2"), **parts})


def settings(**parts: Any) -> dict[str, Any]:
    """Return the librdkafka settings without the logger, which only keeps the terminal quiet."""
    return {name: value for name, value in client_settings(connection(**parts)).items() if name != "logger"}


def test_a_plain_connection_names_brokers_and_protocol_only() -> None:
    assert spark_options(connection()) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.isolation.level": "read_committed",
    }
    assert settings() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "PLAINTEXT",
        "client.id": "glassflow-dagster",
    }


def test_settings_are_passed_on_by_the_names_of_each_client() -> None:
    given = {"client.rack": "a", "request.timeout.ms": 40000, "fetch.min.bytes": 100_000, "enable.metrics.push": False}
    options = spark_options(connection(settings=given))
    assert {name: options[f"kafka.{name}"] for name in given} == {
        "client.rack": "a", "request.timeout.ms": "40000", "fetch.min.bytes": "100000", "enable.metrics.push": "false",
    }  # fmt: skip
    found = settings(settings=given)
    assert (found["client.rack"], found["socket.timeout.ms"], found["enable.metrics.push"]) == ("a", "40000", "false")
    assert not {"fetch.min.bytes", "request.timeout.ms"} & found.keys()


def test_librdkafka_takes_each_setting_that_is_passed_on_to_it() -> None:
    for bound in (0, -1):
        given = {name: spec.values[bound] if spec.values else "a" for name, spec in PASSED_ON.items()}
        with open_consumer(connection(settings=given)) as (consumer, _):
            assert consumer is not None


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_credentials_are_quoted_for_java(mechanism: str, module: str) -> None:
    options = spark_options(connection(protocol="SASL_SSL", mechanism=mechanism, username="u", password=AWKWARD))
    assert options["kafka.sasl.mechanism"] == mechanism
    assert options["kafka.sasl.jaas.config"] == (
        f'org.apache.kafka.common.security.{module} required username="u" password="p\\"\\\\;";'
    )


def test_credentials_go_to_librdkafka_as_they_are() -> None:
    found = settings(protocol="SASL_SSL", mechanism="PLAIN", username="u", password=AWKWARD)
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == ("PLAIN", "u", AWKWARD)


@pytest.mark.parametrize(("protocol", "spoken"), [("SASL_SSL", "SSL"), ("SASL_PLAINTEXT", "PLAINTEXT"), ("SSL", "SSL")])
def test_without_credentials_no_sasl_is_spoken(protocol: str, spoken: str) -> None:
    for parts in ({}, {"mechanism": "PLAIN", "username": "u", "password": "p", "skip_auth": True}):
        options = spark_options(connection(protocol=protocol, **parts))
        assert options["kafka.security.protocol"] == spoken
        assert not any("sasl" in name for name in options)


@pytest.mark.parametrize("root_ca", [PEM, base64.b64encode(PEM.encode()).decode()], ids=["pem", "base64"])
def test_an_authority_is_passed_on_as_pem(root_ca: str) -> None:
    options = spark_options(connection(protocol="SSL", root_ca=root_ca))
    assert options["kafka.ssl.truststore.type"] == "PEM"
    assert options["kafka.ssl.truststore.certificates"] == PEM
    assert settings(protocol="SSL", root_ca=root_ca)["ssl.ca.pem"] == PEM


@pytest.mark.parametrize("root_ca", ["/etc/ca.pem", base64.b64encode(b"no certificate").decode()])
def test_a_root_ca_that_is_no_certificate_is_refused_with_the_remedy(root_ca: str) -> None:
    with pytest.raises(GlassflowError, match=r"root_ca: is neither .*; paste the text"):
        read_pem("connection_params.root_ca", root_ca)


def test_certificates_are_not_checked_when_the_definition_says_so() -> None:
    options = spark_options(connection(protocol="SSL", skip_tls_verification=True))
    assert not options["kafka.ssl.endpoint.identification.algorithm"]
    assert settings(protocol="SSL", skip_tls_verification=True)["enable.ssl.certificate.verification"] is False


def test_tls_settings_have_no_place_without_tls() -> None:
    assert not any("ssl" in name for name in settings(root_ca=PEM, skip_tls_verification=True))


def test_a_clients_certificate_goes_to_both() -> None:
    parts = {"protocol": "SSL", "client_cert": PEM, "client_key": base64.b64encode(KEY.encode()).decode()}
    options = spark_options(connection(**parts))
    assert options["kafka.ssl.keystore.type"] == "PEM"
    assert (options["kafka.ssl.keystore.certificate.chain"], options["kafka.ssl.keystore.key"]) == (PEM, KEY)
    found = settings(**parts)
    assert (found["ssl.certificate.pem"], found["ssl.key.pem"]) == (PEM, KEY)


def test_kerberos_is_passed_on_with_its_files_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path))
    monkeypatch.delenv("KRB5_CONFIG", raising=False)
    parts = {
        "protocol": "SASL_SSL", "mechanism": "GSSAPI", "username": "etl", "kerberos_service_name": "kafka",
        "kerberos_realm": "EXAMPLE.TEST", "kerberos_keytab": base64.b64encode(b"keys").decode(),
        "kerberos_config": "[libdefaults]",
    }  # fmt: skip
    found, options = settings(**parts), spark_options(connection(**parts))
    keytab = Path(found["sasl.kerberos.keytab"])
    assert (keytab.read_bytes(), keytab.stat().st_mode & 0o777) == (b"keys", 0o600)
    assert (found["sasl.mechanism"], found["sasl.kerberos.principal"]) == ("GSSAPI", "etl@EXAMPLE.TEST")
    assert found["sasl.kerberos.service.name"] == options["kafka.sasl.kerberos.service.name"] == "kafka"
    assert Path(os.environ["KRB5_CONFIG"]).read_text() == "[libdefaults]"
    assert options["kafka.sasl.jaas.config"] == (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" doNotPrompt="true" '
        f'keyTab="{keytab}" principal="etl@EXAMPLE.TEST";'
    )
    assert java_options(connection(**parts)) == f"-Djava.security.krb5.conf={os.environ['KRB5_CONFIG']}"
    assert java_options(connection()) == ""
    named = spark_options(connection(**{**parts, "username": 'a" useTicketCache="true'}))
    assert named["kafka.sasl.jaas.config"].endswith('principal="a\\" useTicketCache=\\"true@EXAMPLE.TEST";')
    with pytest.raises(GlassflowError, match="kerberos_keytab: is not base64"):
        settings(**{**parts, "kerberos_keytab": "not base64!"})
