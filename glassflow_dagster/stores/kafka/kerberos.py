"""GSSAPI: a definition's Kerberos settings for librdkafka and for Spark's Kafka source (a Java client).

Both clients read files, so the keytab and krb5.conf are written to a folder that only this user can read; on a cluster
the executors need them at the same path. Two requirements are not part of this project: a confluent-kafka built with
GSSAPI (the wheels on PyPI are not), and Cyrus SASL with its GSSAPI module.
"""

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder
from glassflow_dagster.stores.kafka.jaas import login_module


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return confluent-kafka's SASL settings, and set KRB5_CONFIG in this process.

    Raises `GlassflowError` for a keytab that is no base64.
    """
    # librdkafka has no setting for krb5.conf; the Kerberos library reads this variable.
    os.environ["KRB5_CONFIG"] = str(config_file(connection))
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": connection.kerberos_service_name,
        "sasl.kerberos.principal": principal(connection),
        "sasl.kerberos.keytab": str(keytab_file(connection)),
    }


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Return the `kafka.*` options of Spark's Kafka source; raises `GlassflowError` for a keytab that is no base64."""
    options = {
        "useKeyTab": "true",
        "storeKey": "true",
        "doNotPrompt": "true",
        "keyTab": str(keytab_file(connection)),
        "principal": principal(connection),
    }
    return {
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": connection.kerberos_service_name or "",
        "kafka.sasl.jaas.config": login_module("com.sun.security.auth.module.Krb5LoginModule", options),
    }


def java_options(connection: KafkaConnection) -> str:
    """Return the options that every JVM of a pipeline needs."""
    return f"-Djava.security.krb5.conf={config_file(connection)}"


def principal(connection: KafkaConnection) -> str:
    """Return the principal: the username, with `kerberos_realm` added when it has no realm."""
    user = connection.username or ""
    return user if "@" in user else f"{user}@{connection.kerberos_realm}"


def keytab_file(connection: KafkaConnection) -> Path:
    """Decode the keytab, write it to a file and return its path.

    Raises `GlassflowError` when it is missing, empty or no base64.
    """
    text = connection.kerberos_keytab.get_secret_value() if connection.kerberos_keytab else ""
    try:
        # Without the line breaks that base64 writes.
        keytab = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        keytab = b""
    if not keytab:
        raise GlassflowError("connection_params.kerberos_keytab: is not base64; write the keytab in base64")
    return _write_private(keytab, "keytab")


def config_file(connection: KafkaConnection) -> Path:
    """Write krb5.conf and return its path."""
    return _write_private((connection.kerberos_config or "").encode(), "krb5.conf")


def _write_private(content: bytes, suffix: str) -> Path:
    """Write a file that only this user can read and return its path.

    The name contains a digest of the content, so that pipelines with different settings do not share a file.
    """
    folder = cache_folder() / "kerberos"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(content)
        temporary.replace(file)
    return file
