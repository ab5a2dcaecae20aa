"""Certificates and keys as definitions hold them: PEM, or base64 of it."""

import base64
import binascii

from pydantic import SecretStr

from glassflow_dagster.errors import GlassflowError

# Java's client for Kafka reads no other form, and so that there is one rule, it holds for ClickHouse as well.
_PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----"


def read_pem(setting: str, text: str) -> str:
    """Read a certificate or key, given as PEM or as base64 of it; raises `GlassflowError` when it is neither."""
    if "-----BEGIN" in text:
        return text
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        decoded = ""
    if "-----BEGIN" not in decoded:
        raise GlassflowError(
            f"connection_params.{setting}: is neither PEM nor base64 of it; paste the text that begins with "
            "-----BEGIN, or its base64"
        )
    return decoded


def read_private_key(setting: str, given: SecretStr) -> str:
    """Read a client's key; raises `GlassflowError` when it is not in the one form that is taken: PKCS #8."""
    text = read_pem(setting, given.get_secret_value())
    if _PRIVATE_KEY not in text:
        raise GlassflowError(
            f"connection_params.{setting}: is no unencrypted key in PKCS #8, which begins with {_PRIVATE_KEY}; make "
            "one of it: openssl pkcs8 -topk8 -nocrypt -in KEY.pem"
        )
    return text
