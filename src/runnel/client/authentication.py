"""SASL on a connection, without I/O: requests to send, until the broker has accepted the credentials.

    requests = authenticate(…)
    request = next(requests), then for each response request = requests.send(response)

At the end the generator returns for how long the session lasts (KIP-368). The client authenticates again,
on the same connection, before it ends.
"""

from collections.abc import Generator
from typing import cast

from runnel.client.errors import AuthenticationFailed
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from runnel.model.errors import ErrorCode
from runnel.security.sasl_client import ClientMechanism, SaslFailed
from runnel.security.sasl_login import ROUNDS_MAX
from runnel.wire import Request, Response


def authenticate(address: str, name: str, mechanism: ClientMechanism) -> Generator[Request, Response, int]:
    """Authenticate; returns the lifetime of the session in ms, 0 if it has no end."""
    handshake = cast(SaslHandshakeResponse, (yield SaslHandshakeRequest(mechanism=name)))
    _check_handshake(handshake, address, name)
    token: bytes | None = mechanism.first()
    for _ in range(ROUNDS_MAX):
        assert token is not None
        answer = cast(SaslAuthenticateResponse, (yield SaslAuthenticateRequest(auth_bytes=token)))
        if answer.error_code:
            error = ErrorCode.from_code(answer.error_code)
            reason = answer.error_message or error.name.lower().replace("_", " ")
            raise AuthenticationFailed(f"{address} did not authenticate this client: {reason} ({error.name})")
        try:
            token = mechanism.respond(bytes(answer.auth_bytes))
        except SaslFailed as failure:
            raise AuthenticationFailed(f"{address} is not to be trusted: {failure}") from None
        if token is None:
            return max(answer.session_lifetime_ms, 0)
    raise AuthenticationFailed(f"{address} does not complete the authentication")


def _check_handshake(handshake: SaslHandshakeResponse, address: str, name: str) -> None:
    error = ErrorCode.from_code(handshake.error_code)
    if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationFailed(f"{address} does not accept sasl.mechanism={name}: it accepts {offered}")
    if error is ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            f"{address} does not use SASL: set security.protocol to PLAINTEXT or SSL, or use the port of a "
            f"listener with SASL ({error.name})"
        )
    if error is not ErrorCode.NONE:
        raise AuthenticationFailed(f"{address} did not authenticate this client ({error.name})")
