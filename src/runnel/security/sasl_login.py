"""The requests by which a client authenticates at a broker: SaslHandshake, then SaslAuthenticate.

login = SaslLogin("SCRAM-SHA-512", credentials, nonce)
send login.first(), then login.next(response) until that is None; then `session_ms` is known
"""

from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.security.sasl_client import Credentials, SaslFailed, client_mechanism
from runnel.wire import Request

ROUNDS_MAX = 8
"""More than any mechanism needs: a broker cannot keep a client busy."""
RENEWAL_SHARES = 0.85, 0.95
"""A session is renewed after a random share of its lifetime, as by Kafka's clients: not by all at once."""
RENEWAL_MIN_S = 1.0
"""Brokers refuse to authenticate a connection more often."""


def renewal_s(lifetime_ms: int, fraction: float) -> float | None:
    """When to authenticate again, by a random fraction; None if the session has no end."""
    if not lifetime_ms:
        return None
    least, most = RENEWAL_SHARES
    return max(RENEWAL_MIN_S, lifetime_ms / 1000 * (least + (most - least) * fraction))


class SaslLogin:
    """One authentication at one broker."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: str) -> None:
        self._mechanism = mechanism
        self._client = client_mechanism(mechanism, credentials, nonce)
        self._rounds = 0
        self.session_ms = 0
        """How long the authentication is valid, once it is complete; 0 is forever."""

    def first(self) -> Request:
        """The request that begins it."""
        return SaslHandshakeRequest(self._mechanism)

    def next(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> Request | None:
        """The next request; None if the authentication is complete. Raises SaslFailed."""
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                offered = ", ".join(response.mechanisms) or "none"
                raise SaslFailed(f"{self._mechanism} is not supported there; mechanisms are {offered}")
            return SaslAuthenticateRequest(self._client.first())
        if response.error_code:
            raise SaslFailed(response.error_message or f"error code {response.error_code}")
        token = self._client.respond(bytes(response.auth_bytes))
        if token is not None:
            self._rounds += 1
            if self._rounds >= ROUNDS_MAX:
                raise SaslFailed("the broker does not complete the authentication")
            return SaslAuthenticateRequest(token)
        self.session_ms = response.session_lifetime_ms
        return None
