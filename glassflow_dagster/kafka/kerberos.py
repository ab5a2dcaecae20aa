"""GSSAPI: a definition's Kerberos settings as librdkafka and as Spark's Kafka source (a Java client) want them told.

Both want files. The keytab and krb5.conf are written where only this user can read them; on a cluster the executors
need them at the same path. Needs two things that the project does not bring: a confluent-kafka that was built with
GSSAPI (the wheels on PyPI are not) and Cyrus SASL with its GSSAPI module.
"""

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import Any

from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.jaas import quoted
from glassflow_dagster.runtime.cache import cache_folder


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Give confluent-kafka's settings; raises `GlassflowError` for a keytab that is no base64."""
    # librdkafka leaves krb5.conf to the Kerberos library, which looks here.
    os.environ["KRB5_CONFIG"] = str(config_file(connection))
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": connection.kerberos_service_name,
        "sasl.kerberos.principal": principal(connection),
        "sasl.kerberos.keytab": str(keytab_file(connection)),
    }


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Give the `kafka.*` options of Spark's Kafka source; raises `GlassflowError` for a keytab that is no base64."""
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true "
        f"keyTab={quoted(str(keytab_file(connection)))} principal={quoted(principal(connection))};"
    )
    return {
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": connection.kerberos_service_name or "",
        "kafka.sasl.jaas.config": jaas,
    }


def java_options(connection: KafkaConnection) -> str:
    """Give the options that every JVM of a pipeline needs; empty without GSSAPI."""
    if connection.mechanism != "GSSAPI" or connection.skip_auth:
        return ""
    return f"-Djava.security.krb5.conf={config_file(connection)}"


def principal(connection: KafkaConnection) -> str:
    """Give the name to log in by; a username without a realm belongs to `kerberos_realm`."""
    user = connection.username or ""
    return user if "@" in user else f"{user}@{connection.kerberos_realm}"


def keytab_file(connection: KafkaConnection) -> Path:
    """Write the keytab, and give its place."""
    text = connection.kerberos_keytab.get_secret_value() if connection.kerberos_keytab else ""
    try:
        keytab = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        keytab = b""
    if not keytab:
        raise GlassflowError("connection_params.kerberos_keytab: is no base64; write what base64 makes of the keytab")
    return _written(keytab, "keytab")


def config_file(connection: KafkaConnection) -> Path:
    """Write krb5.conf, and give its place."""
    return _written((connection.kerberos_config or "").encode(), "krb5.conf")


def _written(content: bytes, suffix: str) -> Path:
    """Write a file that only this user can read, named by its content, so that pipelines do not disturb each other."""
    folder = cache_folder() / "kerberos"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(content)
        temporary.replace(file)
    return file
