"""Contexts of OpenSSL from settings and key material, proven by a handshake in memory before their use."""

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from runnel.tls.endpoint import TlsEndpoint
from runnel.tls.failures import tls_failure
from runnel.tls.material import Material
from runnel.tls.settings import BadTls, ClientAuth, TlsSettings

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM"
"""The default suites of TLS 1.2: forward secrecy and authenticated encryption."""

CIPHERS_OF_TLS_1_3 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """The context of a listener. Raises BadTls."""
    if not material.chain:
        raise BadTls("ssl.keystore.location is not set: a listener with TLS needs a key and a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_chain(context, settings, material)
    auth = ClientAuth(settings.client_auth)
    if auth is not ClientAuth.NONE:
        if not material.trusted:
            raise BadTls(f"ssl.truststore.location is not set, but ssl.client.auth is {auth.value}")
        # A resumed session would not verify the certificate again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _trust(context, material)
    _prove(context)
    context.verify_mode = _VERIFY[auth]
    return context


def client_context(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """The context of connections to other nodes, with a certificate of its own if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    _limit(context, settings)
    if material.trusted:
        _trust(context, material)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if material.chain:
        _load_chain(context, settings, material)
    return context


def check_pair(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Verify that nodes with these contexts can talk to each other. Raises BadTls."""
    checks_names = client.check_hostname
    client.check_hostname = False
    try:
        _shake_hands(server, client)
    except ssl.SSLError as error:
        raise BadTls(
            f"ssl.truststore does not accept ssl.keystore, though nodes connect to this listener: "
            f"{tls_failure(error)}"
        ) from error
    finally:
        client.check_hostname = checks_names


def _prove(context: ssl.SSLContext) -> None:
    """Shake hands with a client that verifies nothing."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        _shake_hands(context, client)
    except ssl.SSLError as error:
        raise BadTls(
            f"ssl.keystore and ssl.cipher.suites permit no connection: {tls_failure(error)}"
        ) from error


def _shake_hands(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> None:
    server = TlsEndpoint(server_context)
    client = TlsEndpoint(client_context, is_server=False)
    # The last message of TLS 1.3 is the client's: the server's verdict on its certificate follows.
    while not (client.handshake() and server.is_established):
        server.received(client.output())
        server.handshake()
        client.received(server.output())


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [_VERSIONS[name] for name in settings.enabled_protocols]
    newest = _VERSIONS.get(settings.protocol, max(versions))
    versions = [version for version in versions if version <= newest]
    if not versions:
        raise BadTls(f"ssl.protocol is {settings.protocol}, which excludes all of ssl.enabled.protocols")
    suites = _suites(settings.cipher_suites)
    if settings.cipher_suites and not suites:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_3]
        if not versions:
            raise BadTls("ssl.cipher.suites has no suite of the versions of ssl.enabled.protocols")
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    try:
        context.set_ciphers(suites or CIPHERS)
    except ssl.SSLError:
        raise BadTls("ssl.cipher.suites has no suite that OpenSSL supports") from None


def _suites(names: Sequence[str]) -> str:
    """The suites of TLS 1.2 in OpenSSL's form."""
    newest = {name for name in names if name in CIPHERS_OF_TLS_1_3}
    if newest and newest != CIPHERS_OF_TLS_1_3:
        raise BadTls(
            "ssl.cipher.suites has some suites of TLS 1.3, which cannot be chosen one by one: name all of "
            f"{', '.join(sorted(CIPHERS_OF_TLS_1_3))}, or none"
        )
    suites = [_openssl_name(name) for name in names if name not in newest]
    known = {each["name"] for each in _all_suites()} if suites else set()
    for name, suite in zip((each for each in names if each not in newest), suites, strict=True):
        if suite not in known:
            raise BadTls(f"ssl.cipher.suites has {name}, which OpenSSL does not support")
    return ":".join(suites)


def _all_suites() -> list[dict[str, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:!aNULL:!eNULL:@SECLEVEL=2")
    return context.get_ciphers()  # type: ignore[return-value]


def _openssl_name(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, with_, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not with_:
        return name
    cipher = re.sub(r"(AES|ARIA|CAMELLIA)_(\d+)", r"\1\2", cipher).replace("_CBC", "")
    cipher = re.sub(r"(CHACHA20_POLY1305)_SHA256", r"\1", cipher)
    prefix = "" if exchange == "RSA" else f"{exchange}_"
    return f"{prefix}{cipher}".replace("_", "-")


def _trust(context: ssl.SSLContext, material: Material) -> None:
    # As in Java, any certificate of the trust store is an anchor, not only that of a root.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(each.encoded for each in material.trusted))
    except (ssl.SSLError, ValueError) as error:
        raise BadTls("ssl.truststore has a certificate that cannot be read") from error


def _load_chain(context: ssl.SSLContext, settings: TlsSettings, material: Material) -> None:
    password = (settings.key_password or "").encode()
    try:
        with _as_file(material.chain_pem) as path:
            # Always a password, or OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError, TypeError) as error:
        reason = getattr(error, "reason", "") or ""
        if reason == "KEY_VALUES_MISMATCH":
            raise BadTls("the private key of ssl.keystore is not that of its certificate") from None
        if "ENCRYPTED" in material.key.decode("latin-1").partition("\n")[0] or reason == "BAD_DECRYPT":
            raise BadTls("ssl.key.password is not the password of the private key of ssl.keystore") from None
        words = reason.lower().replace("_", " ") or "it cannot be read"
        raise BadTls(f"the private key or a certificate of ssl.keystore is not usable: {words}") from None


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path for OpenSSL, which reads keys from files only; nothing is written to a disk."""
    if not hasattr(os, "memfd_create"):
        from tempfile import NamedTemporaryFile

        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
