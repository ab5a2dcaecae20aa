"""Certificate authorities and certificates, created for each test run."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key (PKCS#8), as PEM."""

    certificate: str
    key: str

    @property
    def both(self) -> str:
        return self.key + self.certificate


class Authority:
    """Signs certificates for host names and for clients, which the common name identifies."""

    def __init__(self, name: str) -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _unsigned(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = _pem(signed)

    def sign(self, name: str, *hosts: str) -> Certificate:
        """Sign a certificate for `name` that is valid for `hosts`; a client's certificate has no hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = _unsigned(_named(name), self._name, key).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            unsigned = unsigned.add_extension(names, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(_pem(unsigned.sign(self._key, hashes.SHA256())), private.decode())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Broker and tests use the same clock; a minute allows for a correction of it.
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
