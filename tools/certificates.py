"""A certificate authority (CA) for tests and tools, the certificates that it issues, and their files."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

LOCAL = ("localhost", "127.0.0.1")
BEGINS_DAYS, ENDS_DAYS = -2, 30
"""From now. A node whose clock is a day slow or fast accepts a certificate, one years off does not."""
KEY_PASSWORD = "key-secret"
"""Of the encrypted keys and PKCS12 files of `KeyFiles`."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(slots=True, repr=False)
class Issued:
    """A certificate with its key."""

    key: PrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def serial(self) -> int:
        return self.certificate.serial_number

    def key_pem(self, password: bytes | None = None) -> bytes:
        """The private key in PKCS8."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))

    def chain_pem(self) -> bytes:
        return certificate_pem(self.certificate) + certificate_pem(self.issuer)

    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def pkcs12(self, password: bytes, name: str = "node") -> bytes:
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, [self.issuer], _encryption(password)
        )

    def write(self, path: Path, password: bytes | None = None) -> str:
        """Write key and chain into one PEM file."""
        path.write_bytes(self.key_pem(password) + self.chain_pem())
        return str(path)


class CertificateAuthority:
    """Issues certificates."""

    def __init__(self, name: str = "Test CA") -> None:
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = distinguished_name(name)
        self.certificate = self._sign(subject, subject, self._key, (), BEGINS_DAYS, 365, is_ca=True)

    def issue(
        self,
        subject: str | x509.Name,
        hosts: tuple[str, ...] = LOCAL,
        *,
        begins_days: float = BEGINS_DAYS,
        ends_days: float = ENDS_DAYS,
        is_rsa: bool = False,
    ) -> Issued:
        """A new key with a certificate for these host names and addresses."""
        key: PrivateKey = (
            rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        )
        own = distinguished_name(subject) if isinstance(subject, str) else subject
        signed = self._sign(own, self.certificate.subject, key, hosts, begins_days, ends_days, is_ca=False)
        return Issued(key, signed, self.certificate)

    def pem(self) -> str:
        """The certificate of the CA."""
        return certificate_pem(self.certificate).decode()

    def write(self, path: Path) -> str:
        """Write the certificate of the CA."""
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
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if is_ca:
            builder = builder.add_extension(_CA_KEY_USAGE, critical=True)
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@dataclass(frozen=True, slots=True)
class KeyFiles:
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


class CaFolder:
    """A CA whose certificate, and those that it issues, are files in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._ca = CertificateAuthority(name)
        self.certificate = folder / f"{name}.crt"
        self._ca.write(self.certificate)

    def issue(self, name: str, *hosts: str, is_expired: bool = False) -> KeyFiles:
        """A new key with a certificate for these host names and addresses."""
        issued = self._ca.issue(name, hosts, ends_days=-1 if is_expired else ENDS_DAYS)
        files = KeyFiles(self.folder, name)
        certificate = certificate_pem(issued.certificate)
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(issued.key_pem())
        files.encrypted_key.write_bytes(issued.key_pem(KEY_PASSWORD.encode()))
        files.pem.write_bytes(issued.key_pem() + certificate)
        files.pkcs12.write_bytes(issued.pkcs12(KEY_PASSWORD.encode(), name))
        return files


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def distinguished_name(common_name: str, **others: str) -> x509.Name:
    """The most specific part is the last."""
    kinds = {
        "C": NameOID.COUNTRY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    }
    parts = [x509.NameAttribute(kinds[kind], value) for kind, value in others.items()]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


_CA_KEY_USAGE = x509.KeyUsage(
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


def _encryption(password: bytes | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password) if password else NoEncryption()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
