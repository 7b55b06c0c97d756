"""Files with keys and certificates: PEM as it is, PKCS12 and JKS by the readers of runnel.tls."""

from dataclasses import dataclass, field
from pathlib import Path

from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties
from runnel.tls.settings import BadTls
from runnel.tls.stores import Store, pem, read_store

FILE_BYTES_MAX = 16 * 1024 * 1024

_PEM = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A private key with its certificates, and the property that names it."""

    name: str
    pem: str = field(repr=False)


def read_trust_store(path: str, name: str, properties: ClientProperties) -> str:
    """The certificates of a file, as PEM; the text of a file in PEM as it is."""
    data = _read(path, name)
    if _PEM in data:
        return data.decode("latin-1")
    return _certificates(_store(data, path, name, properties.text("ssl.truststore.password"), None))


def read_key_store(path: str, properties: ClientProperties) -> StoredKey:
    """The private key and the certificates of ssl.keystore.location."""
    name = "ssl.keystore.location"
    data = _read(path, name)
    if _PEM in data:
        return StoredKey(name, data.decode("latin-1"))
    passwords = properties.text("ssl.keystore.password"), properties.text("ssl.key.password")
    store = _store(data, path, name, *passwords)
    if not store.key:
        raise InvalidProperty(f"{name}: {path} contains no private key")
    return StoredKey(name, store.key.decode() + "\n" + _certificates(store))


def _read(path: str, name: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidProperty(f"{name}: cannot read {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidProperty(f"{name}: {path} is larger than {FILE_BYTES_MAX} bytes")
    return data


def _store(data: bytes, path: str, name: str, password: str | None, key_password: str | None) -> Store:
    try:
        # Which of the two formats it is, the reader sees.
        return read_store("JKS", data, password, key_password)
    except BadTls as error:
        raise InvalidProperty(f"{name}: {path} {error}") from None


def _certificates(store: Store) -> str:
    return b"".join(pem("CERTIFICATE", certificate) for certificate in store.certificates).decode()
