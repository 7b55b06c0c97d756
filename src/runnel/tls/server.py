"""TLS of a listener: the context of new connections, which may be replaced, and the identity of clients."""

import ssl
from collections.abc import Callable

from runnel.security.distinguished_name import rfc2253
from runnel.security.principal import ANONYMOUS, USER, Principal
from runnel.security.principal_mapping import NoRule, PrincipalMapping
from runnel.security.x509 import BadCertificate, read_certificate


class NotAuthenticated(Exception):
    """The certificate of the client names no principal."""


class ServerTls:
    """The TLS of one listener."""

    def __init__(
        self, context: ssl.SSLContext, mapping: PrincipalMapping, *, names_principal: bool = True
    ) -> None:
        self.context = context
        """That of new connections; open ones keep theirs."""
        self._mapping = mapping
        self._names_principal = names_principal
        """Whether the certificate of a client is its identity; with SASL it is not."""

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client with this certificate. Raises NotAuthenticated."""
        if certificate is None or not self._names_principal:
            return ANONYMOUS
        try:
            name = rfc2253(read_certificate(certificate).subject)
            return Principal(USER, self._mapping.name_of(name))
        except (BadCertificate, NoRule) as error:
            raise NotAuthenticated(f"authentication failed: {error}") from error


ClientContext = Callable[[], ssl.SSLContext]
"""The context of new connections to other nodes."""
