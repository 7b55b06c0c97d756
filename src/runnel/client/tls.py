"""TLS contexts from client properties.

Key material is PEM, PKCS12 or JKS, in files, or PEM in the properties themselves.
"""

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from runnel.client.errors import InvalidProperty
from runnel.client.key_stores import StoredKey, read_key_store, read_trust_store
from runnel.client.properties import ClientProperties

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def new_context(properties: ClientProperties) -> ssl.SSLContext:
    """The context of a client; reads all files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Java, any certificate of the trust store is an anchor, not only that of a root.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    _set_versions(context, properties)
    _load_trust(context, properties)
    _load_key(context, properties)
    algorithm = properties.text("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() not in ("https", "none", ""):
        raise InvalidProperty("ssl.endpoint.identification.algorithm is neither https nor empty")
    context.check_hostname = algorithm is None or algorithm.lower() == "https"
    if (properties.text("enable.ssl.certificate.verification") or "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _set_versions(context: ssl.SSLContext, properties: ClientProperties) -> None:
    names = [name.strip() for name in (properties.text("ssl.enabled.protocols") or "").split(",")]
    chosen = [name for name in names if name] or list(_VERSIONS)
    if not _VERSIONS.keys() >= set(chosen):
        raise InvalidProperty(f"ssl.enabled.protocols is not a list of {', '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[name] for name in chosen)
    context.maximum_version = max(_VERSIONS[name] for name in chosen)


def _load_trust(context: ssl.SSLContext, properties: ClientProperties) -> None:
    inline = properties.first_given("ssl.truststore.certificates", "ssl.ca.pem")
    place = properties.first_given("ssl.truststore.location", "ssl.ca.location")
    try:
        if inline is not None:
            context.load_verify_locations(cadata=pem_lines(properties.text(inline) or ""))
        elif place is not None:
            path = properties.text(place) or ""
            if os.path.isdir(path):
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cadata=read_trust_store(path, place, properties))
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (ssl.SSLError, ValueError):
        raise InvalidProperty(f"{inline or place} contains no certificates in PEM format") from None


def _load_key(context: ssl.SSLContext, properties: ClientProperties) -> None:
    """The key and the certificate that the client shows, if there is one."""
    key = _inline_key(properties) or _stored_key(properties)
    if key is None:
        return

    def password() -> str:
        # Without this OpenSSL would ask on the terminal.
        return properties.required("ssl.key.password", f"because the key of {key.name} is encrypted")

    try:
        with _as_file(key.pem) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        reason = (error.reason or "unknown").lower().replace("_", " ")
        raise InvalidProperty(
            f"{key.name} is not a private key with its certificate, or ssl.key.password is wrong ({reason})"
        ) from None


def _inline_key(properties: ClientProperties) -> StoredKey | None:
    for key, chain in (
        ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.key.pem", "ssl.certificate.pem"),
    ):
        if key in properties or chain in properties:
            pem = properties.required(key, f"with {chain}") + "\n" + properties.required(chain, f"with {key}")
            return StoredKey(key, pem_lines(pem))
    return None


def _stored_key(properties: ClientProperties) -> StoredKey | None:
    if "ssl.certificate.location" in properties or "ssl.key.location" in properties:
        names = ("ssl.key.location", "ssl.certificate.location")
        both = [
            read_trust_store(properties.required(name, f"with {other}"), name, properties)
            for name, other in (names, names[::-1])
        ]
        return StoredKey("ssl.key.location", "\n".join(both))
    location = properties.text("ssl.keystore.location")
    return None if location is None else read_key_store(location, properties)


def pem_lines(text: str) -> str:
    """PEM with its line ends, which a value in a properties file may have lost."""
    return _BLOCK.sub(_with_lines, text)


def _with_lines(block: re.Match[str]) -> str:
    kind, body = block[1], block[2]
    if ":" not in body:
        # Not one with headers, such as an encrypted key in the traditional format.
        base64 = "".join(body.split())
        body = "\n" + "\n".join(base64[start : start + 64] for start in range(0, len(base64), 64)) + "\n"
    return f"-----BEGIN {kind}-----{body}-----END {kind}-----"


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path for OpenSSL, which reads keys from files only; on Linux the file is in memory."""
    if not hasattr(os, "memfd_create"):
        import tempfile

        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    with os.fdopen(os.memfd_create("key", os.MFD_CLOEXEC), "w") as memory:
        memory.write(text)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"
