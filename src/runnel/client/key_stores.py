"""Files with keys and certificates: PEM as it is, PKCS12 by the package `cryptography`."""

from dataclasses import dataclass, field
from pathlib import Path

from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties

FILE_BYTES_MAX = 16 * 1024 * 1024

_JKS = b"\xfe\xed\xfe\xed"
_DER = b"\x30"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A private key with its certificates, and the property that names it."""

    name: str
    pem: str = field(repr=False)


def read_trust_store(path: str, name: str, properties: ClientProperties) -> str:
    """The certificates of a file, as PEM."""
    data = _read(path, name)
    if not data.startswith(_DER):
        return _pem(data, path, name)
    _, chain = _pkcs12(data, path, name, properties.text("ssl.truststore.password"))
    return chain


def read_key_store(path: str, properties: ClientProperties) -> StoredKey:
    """The private key and the certificates of ssl.keystore.location."""
    name = "ssl.keystore.location"
    data = _read(path, name)
    if not data.startswith(_DER):
        return StoredKey(name, _pem(data, path, name))
    key, chain = _pkcs12(data, path, name, properties.text("ssl.keystore.password"))
    if not key:
        raise InvalidProperty(f"{name}: {path} contains no private key")
    return StoredKey(name, key + chain)


def _read(path: str, name: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidProperty(f"{name}: cannot read {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidProperty(f"{name}: {path} is larger than {FILE_BYTES_MAX} bytes")
    return data


def _pem(data: bytes, path: str, name: str) -> str:
    if data.startswith(_JKS):
        raise InvalidProperty(
            f"{name}: {path} is in Java's format JKS, which is not supported. Convert it: keytool "
            "-importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"
        )
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidProperty(f"{name}: {path} is neither PEM nor PKCS12") from None


def _pkcs12(data: bytes, path: str, name: str, password: str | None) -> tuple[str, str]:
    """The private key, or nothing, and the certificates of a file, as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise InvalidProperty(
            f"{name}: to read {path}, which is PKCS12, install the package cryptography, or convert it to "
            "PEM: openssl pkcs12 -in FILE -out FILE.pem -nodes"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise InvalidProperty(f"{name}: {path} is not PKCS12, or its password is wrong") from None
    certificates = [store.cert, *store.additional_certs]
    chain = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates if each is not None)
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), chain.decode()
