"""The key material of a listener or client: its own key and certificates, and those it trusts."""

from dataclasses import dataclass, field

from runnel.security.x509 import BadCertificate, Certificate, read_certificate
from runnel.tls.settings import BadTls, TlsSettings
from runnel.tls.stores import Store, pem, read_pem, read_store

FILE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """What is needed to make a context."""

    key: bytes = b""
    """In PEM format; empty without a key store."""
    chain: list[Certificate] = field(default_factory=list)
    trusted: list[Certificate] = field(default_factory=list)
    """Empty without a trust store."""

    @property
    def chain_pem(self) -> bytes:
        """The key and the certificates in PEM format."""
        return b"\n".join([self.key, *(pem("CERTIFICATE", each.encoded) for each in self.chain)])


def load_material(settings: TlsSettings, now_s: float) -> Material:
    """Read and check the key material. Raises BadTls."""
    own, trusted = _own_store(settings), _trust_store(settings)
    is_inline = not settings.keystore_location
    setting = "ssl.keystore.certificate.chain" if is_inline else "ssl.keystore.location"
    chain = _certificates(setting, own) if own else []
    if own and not own.key:
        raise BadTls(f"{'ssl.keystore.key' if is_inline else setting} has no private key")
    if chain and chain[0].not_after_s < now_s:
        raise BadTls(f"{setting} has a certificate that has expired")
    if chain and chain[0].not_before_s > now_s:
        raise BadTls(f"{setting} has a certificate that is not valid yet")
    is_inline = not settings.truststore_location
    setting = "ssl.truststore.certificates" if is_inline else "ssl.truststore.location"
    anchors = _certificates(setting, trusted) if trusted else []
    return Material(own.key if own else b"", chain, anchors)


def _certificates(setting: str, store: Store) -> list[Certificate]:
    if not store.certificates:
        raise BadTls(f"{setting} has no certificate")
    try:
        return [read_certificate(each) for each in store.certificates]
    except BadCertificate as error:
        raise BadTls(f"{setting} has a certificate that cannot be read") from error


def _own_store(settings: TlsSettings) -> Store | None:
    key, chain = settings.keystore_key, settings.keystore_certificate_chain
    kind, location = settings.keystore_type, settings.keystore_location
    is_pem = kind.upper() == "PEM"
    if key or chain:
        if not (key and chain):
            missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
            raise BadTls(f"{missing} is not set: key and certificate chain belong together")
        if location:
            raise BadTls("ssl.keystore.location and ssl.keystore.key are both set: remove one")
        if not is_pem:
            raise BadTls(f"ssl.keystore.key is PEM, but ssl.keystore.type is {kind}: set it to PEM")
        return Store(
            _read("ssl.keystore.key", "PEM", key.encode()).key,
            _read("ssl.keystore.certificate.chain", "PEM", chain.encode()).certificates,
        )
    if not location:
        return None
    if is_pem and settings.keystore_password:
        raise BadTls("ssl.keystore.password is set, but PEM files have none: use ssl.key.password")
    data = _file("ssl.keystore.location", location)
    return _read("ssl.keystore.location", kind, data, settings.keystore_password, settings.key_password)


def _trust_store(settings: TlsSettings) -> Store | None:
    kind, location, inline = (
        settings.truststore_type,
        settings.truststore_location,
        settings.truststore_certificates,
    )
    if inline:
        if location:
            raise BadTls("ssl.truststore.location and ssl.truststore.certificates are both set: remove one")
        if kind.upper() != "PEM":
            raise BadTls(
                f"ssl.truststore.certificates is PEM, but ssl.truststore.type is {kind}: set it to PEM"
            )
        return _read("ssl.truststore.certificates", "PEM", inline.encode())
    if not location:
        return None
    if kind.upper() == "PEM" and settings.truststore_password:
        raise BadTls("ssl.truststore.password is set, but PEM files have none")
    data = _file("ssl.truststore.location", location)
    return _read("ssl.truststore.location", kind, data, settings.truststore_password)


def _read(
    setting: str, kind: str, data: bytes, password: str | None = None, key_password: str | None = None
) -> Store:
    try:
        return read_pem(data) if kind == "PEM" else read_store(kind, data, password, key_password)
    except BadTls as error:
        raise BadTls(f"{setting} {error}") from error


def _file(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadTls(f"{setting}: cannot read {path}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadTls(f"{setting}: {path} has more than {FILE_BYTES_MAX} bytes")
    return data
