"""How the connections of a client are protected: TLS, SASL, both or neither.

One object serves all connections of a client. Files are read and references resolved when the first
connection is opened; credentials again for every authentication, so that a rotated password or token is used.
"""

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.client.errors import InvalidProperty
from runnel.client.properties import ClientProperties, is_security_name

if TYPE_CHECKING:
    import ssl

    from runnel.security.sasl_client import ClientMechanism, Credentials

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ClientSecurity:
    """The security of connections, by the properties of Kafka's clients."""

    def __init__(self, properties: ClientProperties, protocol: str) -> None:
        self.protocol = protocol
        self._properties = properties
        self._context: ssl.SSLContext | None = None
        self._credentials: Credentials | None = None

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def ssl_context(self) -> "ssl.SSLContext":
        """The context of all connections; reads files the first time."""
        if self._context is None:
            from runnel.client.tls import new_context

            self._context = new_context(self._properties)
        return self._context

    def new_mechanism(self) -> "tuple[str, ClientMechanism]":
        """The name of the SASL mechanism, and the state of a new authentication. May run a command."""
        from runnel.client.credentials import read_credentials
        from runnel.security.sasl_client import client_mechanism

        name, credentials = read_credentials(self._properties)
        if self._credentials != credentials:
            self._credentials = credentials
        return name, client_mechanism(name, self._credentials, secrets.token_urlsafe(24))

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol})"


def security_of(properties: Mapping[str, str] | None) -> ClientSecurity | None:
    """The security that properties ask for; None for PLAINTEXT."""
    if not properties:
        return None
    own = properties if isinstance(properties, ClientProperties) else ClientProperties(properties)
    protocol = protocol_of(own)
    if protocol == PLAINTEXT and "security.protocol" not in own:
        for name in filter(is_security_name, own):
            # Not silently without encryption.
            raise InvalidProperty(f"{name} has no effect without security.protocol: set it")
    return None if protocol == PLAINTEXT else ClientSecurity(own, protocol)


def protocol_of(properties: ClientProperties) -> str:
    """The security protocol; InvalidProperty if it is none of Kafka's."""
    protocol = (properties.text("security.protocol") or PLAINTEXT).upper()
    if protocol not in PROTOCOLS:
        raise InvalidProperty(f"security.protocol is not one of {', '.join(PROTOCOLS)}")
    return protocol


def closed_hint(security: ClientSecurity | None, answered: int) -> str:
    """Why a broker may have closed a connection, by the number of requests that it answered."""
    if answered == 0 and security is not None and security.uses_tls:
        return ". Does the listener require a certificate of the client? See ssl.keystore.location"
    if answered == 0:
        return ". A TLS listener does so to clients without TLS: see security.protocol"
    if answered == 1 and security is None:
        return ". A listener with SASL does so to clients that do not authenticate: see security.protocol"
    return ""
