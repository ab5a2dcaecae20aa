"""The certificate authorities that Python trusts, as a Java trust store.

A Java from the system brings the trust its administrator gave it. The runtime from the wheel knows only the
public authorities, so behind a company proxy it refuses what pip on the same machine has just accepted.
The store is written in JKS, the one format of Java's that needs nothing but a hash.
"""

import hashlib
import re
import ssl
import struct
from pathlib import Path

_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2

# JKS seals a store with a password and this phrase. A trust store holds nothing secret; the password is Java's default.
_PASSWORD, _PHRASE = "changeit", b"Mighty Aphrodite"

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

# OpenSSL finds a certificate in a folder by the hash of its subject; other files there are the same ones again.
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def trusted_certificates() -> list[bytes]:
    """The DER certificates of Python's default authorities, sorted; empty where it has none.

    `SSL_CERT_FILE` and `SSL_CERT_DIR` are obeyed, as Python itself does.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        files = [Path(paths.cafile)]
    elif paths.capath:
        files = [file for file in Path(paths.capath).iterdir() if _HASHED.fullmatch(file.name) and file.is_file()]
    else:
        files = []
    certificates = (_PEM.findall(file.read_text(encoding="utf-8", errors="replace")) for file in files)
    return sorted({ssl.PEM_cert_to_DER_cert(pem) for found in certificates for pem in found})


def java_key_store(certificates: list[bytes]) -> bytes:
    """A JKS trust store of these DER certificates, password `changeit`."""
    content = struct.pack(">III", _MAGIC, _VERSION, len(certificates)) + b"".join(
        struct.pack(">I", _TRUSTED_CERTIFICATE)
        + _text(f"authority-{number}")
        + struct.pack(">Q", 0)
        + _text("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    )
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + _PHRASE + content, usedforsecurity=False)
    return content + seal.digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
