"""Key material in the formats of Kafka: PEM, PKCS12 and JKS.

All become PEM, which OpenSSL reads. PKCS12 needs the package `cryptography` (`pip install runnel[security]`).
JKS, Java's former format, is read here: its keys are encrypted by a scheme of its own, with SHA-1.
"""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from hmac import compare_digest

from runnel.security.der import BadEncoding, elements, read_element
from runnel.security.x509 import BadCertificate, read_certificate
from runnel.tls.settings import BadTls

_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----", re.S
)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.S)
_PEM = b"-----BEGIN "

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2


@dataclass(slots=True, repr=False)
class Store:
    """The contents of a key store or trust store."""

    key: bytes = b""
    """The private key in PEM format, possibly encrypted."""
    certificates: list[bytes] = field(default_factory=list)
    """In DER format; with a key, its own certificate is the first."""


def read_store(kind: str, data: bytes, password: str | None, key_password: str | None) -> Store:
    """Read a store. Raises BadTls, whose message begins with a verb and does not name the setting."""
    is_pem = _PEM in data
    if kind.upper() == "PEM":
        return read_pem(data)
    if is_pem:
        raise BadTls(f"is a PEM file, but its type is {kind}: set the type to PEM")
    if data.startswith(_JKS_MAGIC):
        return _read_jks(data, password or "", key_password)
    # As Java does, which reads PKCS12 files as JKS, too.
    return _read_pkcs12(data, password)


def read_pem(data: bytes) -> Store:
    """The key and the certificates of a PEM text. Raises BadTls."""
    key = _KEY.search(data)
    try:
        certificates = [b64decode(found[1], validate=False) for found in _CERTIFICATE.finditer(data)]
        for certificate in certificates:
            read_certificate(certificate)
    except (ValueError, BadCertificate) as error:
        raise BadTls("has a certificate that cannot be read") from error
    return Store(key[0] if key else b"", certificates)


def pem(kind: str, data: bytes) -> bytes:
    """DER as PEM."""
    text = b64encode(data)
    lines = b"\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (kind.encode(), lines, kind.encode())


def _read_pkcs12(data: bytes, password: str | None) -> Store:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise BadTls(
            "is a PKCS12 file, which needs `pip install runnel[security]`; or convert it to PEM with "
            "`openssl pkcs12 -in FILE -out FILE.pem -nodes`"
        ) from None
    try:
        read = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except Exception as error:
        # The parser has many kinds of errors, and their texts may quote what it was given.
        raise BadTls("is no PKCS12 or JKS file, or its password is wrong") from error
    encoding = serialization.Encoding
    certificates = [each.certificate.public_bytes(encoding.DER) for each in read.additional_certs]
    if read.cert is not None:
        own = read.cert.certificate.public_bytes(encoding.DER)
        certificates = chain_of(own, certificates) if read.key is not None else [own, *certificates]
    if read.key is None:
        return Store(b"", certificates)
    key = read.key.private_bytes(
        encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Store(key, certificates)


def chain_of(own: bytes, others: list[bytes]) -> list[bytes]:
    """A certificate and its issuers, in this order. Raises BadTls."""
    try:
        by_subject = {read_certificate(each).subject: each for each in others}
        chain = [own]
        while len(chain) <= len(others):
            last = read_certificate(chain[-1])
            issuer = by_subject.get(last.issuer)
            if issuer is None or issuer in chain:
                break
            chain.append(issuer)
    except BadCertificate as error:
        raise BadTls("has a certificate that cannot be read") from error
    return chain


class _Input:
    """Reads the big-endian values of Java's DataOutputStream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise BadTls("is cut off")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def sized(self, size_bytes: int) -> bytes:
        return self.take(self.number(size_bytes))


def _read_jks(data: bytes, password: str, key_password: str | None) -> Store:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    secret = password.encode("utf-16-be")
    if password and not compare_digest(hashlib.sha1(secret + _JKS_SALT + body).digest(), digest):
        raise BadTls("has another password, or is damaged")
    store = Store()
    for key, certificates in _jks_entries(_Input(body)):
        if key is not None and not store.key:
            own = _jks_key(key, (key_password or password).encode("utf-16-be"))
            store.key = pem("PRIVATE KEY", own)
            store.certificates = certificates + store.certificates
        elif key is None:
            store.certificates += certificates
    return store


def _jks_entries(source: _Input) -> Iterator[tuple[bytes | None, list[bytes]]]:
    """(encrypted key, certificates) of each entry."""
    source.take(len(_JKS_MAGIC))
    version = source.number(4)
    for _ in range(source.number(4)):
        kind = source.number(4)
        source.sized(2)  # its name
        source.number(8)  # its date
        if kind == _KEY_ENTRY:
            key = source.sized(4)
            yield key, [_jks_certificate(source, version) for _ in range(source.number(4))]
        elif kind == _CERTIFICATE_ENTRY:
            yield None, [_jks_certificate(source, version)]
        else:
            raise BadTls("has an entry of an unknown kind")


def _jks_certificate(source: _Input, version: int) -> bytes:
    if version >= 2:
        source.sized(2)  # its type, X.509
    return source.sized(4)


def _jks_key(encrypted: bytes, secret: bytes) -> bytes:
    """Decrypt a key: it is combined with digests, each of the secret and the one before."""
    try:
        whole, _ = read_element(encrypted)
        _algorithm, octets = elements(whole.content)
    except (BadEncoding, ValueError) as error:
        raise BadTls("has a key that cannot be read") from error
    content = octets.content
    salt, sealed, check = content[:20], content[20:-20], content[-20:]
    stream = b""
    digest = salt
    while len(stream) < len(sealed):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(left ^ right for left, right in zip(sealed, stream, strict=False))
    if not compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise BadTls("has a key with another password: set ssl.key.password")
    return key
