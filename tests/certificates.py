"""Keys and certificates for tests: an authority that signs servers and clients, in PEM and PKCS12."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "key-secret"
"""Of the encrypted keys and of the PKCS12 files."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The files of one key with its certificate."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        """The private key in PKCS8."""
        return self.folder / f"{self.name}.key"

    @property
    def encrypted_key(self) -> Path:
        return self.folder / f"{self.name}.encrypted.key"

    @property
    def pem(self) -> Path:
        """Key and certificate in one file, as Kafka's PEM key stores are."""
        return self.folder / f"{self.name}.pem"

    @property
    def pkcs12(self) -> Path:
        return self.folder / f"{self.name}.p12"


class Authority:
    """A certificate authority with its own folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = folder / f"{name}.crt"
        self.certificate.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def sign(self, name: str, *hosts: str, is_expired: bool = False) -> Identity:
        """A key with a certificate for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key.public_key(), is_expired=is_expired)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        identity = Identity(self.folder, name)
        lock = BestAvailableEncryption(KEY_PASSWORD.encode())
        chain = certificate.public_bytes(Encoding.PEM)
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        identity.certificate.write_bytes(chain)
        identity.key.write_bytes(plain)
        identity.encrypted_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
        identity.pem.write_bytes(plain + chain)
        identity.pkcs12.write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, [self._certificate], lock)
        )
        return identity


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, is_expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=-1 if is_expired else 30))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
