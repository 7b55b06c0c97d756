"""A certificate authority for tests, and the certificates that it issues."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

LOCAL = ("localhost", "127.0.0.1")

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(slots=True)
class Issued:
    """A certificate with its key."""

    key: PrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    def key_pem(self, password: bytes | None = None) -> bytes:
        encryption: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        )
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )

    def chain_pem(self) -> bytes:
        return certificate_pem(self.certificate) + certificate_pem(self.issuer)

    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def pkcs12(self, password: bytes) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"node",
            self.key,
            self.certificate,
            [self.issuer],
            serialization.BestAvailableEncryption(password),
        )

    def write(self, path: Path, password: bytes | None = None) -> str:
        """Write key and chain into one PEM file."""
        path.write_bytes(self.key_pem(password) + self.chain_pem())
        return str(path)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def name(common_name: str, **others: str) -> x509.Name:
    """A distinguished name; its most specific part is the last."""
    kinds = {
        "C": NameOID.COUNTRY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    }
    parts = [x509.NameAttribute(kinds[kind], value) for kind, value in others.items()]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


_OF_AUTHORITIES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Issues certificates."""

    def __init__(self, common_name: str = "Test CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name(common_name), name(common_name), self.key, (), 0, 365, is_ca=True)

    def issue(
        self,
        subject: str | x509.Name,
        hosts: tuple[str, ...] = LOCAL,
        *,
        begins_days: float = 0,
        ends_days: float = 30,
        is_rsa: bool = False,
    ) -> Issued:
        """A certificate that is valid from and to so many days from now."""
        key: PrivateKey = (
            rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        )
        own = name(subject) if isinstance(subject, str) else subject
        signed = self._sign(own, self.certificate.subject, key, hosts, begins_days, ends_days, is_ca=False)
        return Issued(key, signed, self.certificate)

    def pem(self) -> str:
        """The certificate of the authority."""
        return certificate_pem(self.certificate).decode()

    def write(self, path: Path) -> str:
        """Write the certificate of the authority."""
        path.write_text(self.pem())
        return str(path)

    def _sign(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: PrivateKey,
        hosts: tuple[str, ...],
        begins_days: float,
        ends_days: float,
        *,
        is_ca: bool,
    ) -> x509.Certificate:
        now = datetime.now(UTC) - timedelta(minutes=5)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=begins_days))
            .not_valid_after(now + timedelta(days=ends_days))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
        )
        if is_ca:
            builder = builder.add_extension(_OF_AUTHORITIES, critical=True)
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
