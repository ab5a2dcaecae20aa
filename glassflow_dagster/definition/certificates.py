"""Read certificates and keys of a definition: PEM, or base64 of PEM."""

import base64
import binascii

from pydantic import SecretStr

from glassflow_dagster.errors import GlassflowError

# PKCS #8, the only form that Kafka's Java client reads; required for ClickHouse too, so that there is one rule.
_PKCS8_HEADER = "-----BEGIN PRIVATE KEY-----"


def read_pem(setting: str, text: str) -> str:
    """Return a certificate or key as PEM.

    setting: its key in a definition.
    text: PEM, or base64 of PEM.

    Raises `GlassflowError`, naming the setting, for any other text.
    """
    if "-----BEGIN" in text:
        return text
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        decoded = ""
    if "-----BEGIN" not in decoded:
        raise GlassflowError(
            f"{setting}: is neither PEM nor base64 of PEM; paste the text that begins with -----BEGIN, or its base64"
        )
    return decoded


def read_private_key(setting: str, secret: SecretStr) -> str:
    """Return a client's private key as PEM; raises `GlassflowError` when it is not an unencrypted PKCS #8 key."""
    text = read_pem(setting, secret.get_secret_value())
    if _PKCS8_HEADER not in text:
        raise GlassflowError(
            f"{setting}: is not an unencrypted PKCS #8 key, which begins with {_PKCS8_HEADER}; "
            "convert it: openssl pkcs8 -topk8 -nocrypt -in KEY.pem"
        )
    return text
