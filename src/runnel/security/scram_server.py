"""The server's side of SCRAM, for users and for delegation tokens.

Whether a user exists must not show: for an unknown one the challenge has a salt that is derived from a secret
of the server, the same each time, and the exchange fails at its end as for a wrong password.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from runnel.security.principal import USER, Principal
from runnel.security.sasl_server import Accepted, AuthenticationFailed, Challenge, Outcome, Step, Work, shown
from runnel.security.scram import (
    ITERATIONS_MIN,
    SCRAM_HASHES,
    TOKEN_EXTENSION,
    ClientFinal,
    ClientFirst,
    MalformedScram,
    ScramVerifier,
    base64,
    is_proof,
    new_salt,
    read_client_final,
    read_client_first,
    salted_password,
    server_signature,
    verifier_of,
)

MESSAGE_BYTES_MAX = 8 * 1024
"""The longest message of a client: a name and a nonce, or a nonce and a proof."""


class TokenIdentity(NamedTuple):
    """A delegation token as far as authentication is concerned."""

    owner: Principal
    password: str
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"TokenIdentity({self.owner})"


class ScramUsers(NamedTuple):
    """Where the server's side finds users and tokens."""

    verifier: Callable[[str, str], ScramVerifier | None]
    """By mechanism and user."""
    token: Callable[[str], TokenIdentity | None]
    """By the id of a delegation token; expired ones too."""
    secret: bytes
    """The salts of unknown users are derived from it."""

    def __repr__(self) -> str:
        return "ScramUsers()"


def salt_of(secret: bytes, mechanism: str, user: str) -> bytes:
    """A salt that looks like one of Kafka's tools, and cannot be distinguished from it without the secret."""
    return new_salt(hmac.digest(secret, f"salt {mechanism} {user}".encode(), "sha512"))


def unknown_user(secret: bytes, mechanism: str, user: str) -> ScramVerifier:
    """The verifier of a user that does not exist: no password fits, since the keys are no hashes of any."""
    algorithm = SCRAM_HASHES[mechanism]
    return ScramVerifier(
        salt_of(secret, mechanism, user),
        ITERATIONS_MIN,
        stored_key=hmac.digest(secret, f"stored {mechanism} {user}".encode(), algorithm),
        server_key=hmac.digest(secret, f"server {mechanism} {user}".encode(), algorithm),
    )


class ScramServer:
    """One SCRAM exchange."""

    def __init__(self, mechanism: str, users: ScramUsers, nonce: str) -> None:
        self._mechanism = mechanism
        self._algorithm = SCRAM_HASHES[mechanism]
        self._users = users
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._server_first = b""
        self._verifier: ScramVerifier | None = None
        self._accepted: Accepted | None = None
        """The outcome if the proof is right; None if it cannot be."""

    def receive(self, token: bytes, now_ms: int) -> Step:
        """The client-first message, then the client-final message."""
        if len(token) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed(f"{self._mechanism}: a message of {len(token)} bytes")
        try:
            if self._first is None:
                return self._begin(read_client_first(token), now_ms)
            return self._finish(self._first, read_client_final(token))
        except MalformedScram as error:
            raise AuthenticationFailed(f"{self._mechanism}: {error}") from None

    def _begin(self, first: ClientFirst, now_ms: int) -> Step:
        if first.authzid and first.authzid != first.user:
            raise AuthenticationFailed(f"{self._mechanism}: {shown(first.user)} asks for another identity")
        self._first = first
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            return self._begin_token(first.user, now_ms)
        verifier = self._users.verifier(self._mechanism, first.user)
        if verifier is not None:
            self._accepted = Accepted(Principal(USER, first.user))
        return self._challenge(verifier or self._unknown(first.user))

    def _begin_token(self, token_id: str, now_ms: int) -> Step:
        token = self._users.token(token_id)
        if token is not None and token.expires_at_ms > now_ms:
            self._accepted = Accepted(token.owner, expires_at_ms=token.expires_at_ms)
            password = token.password
        else:
            # As much work as for a token that exists.
            password = ""
        salt = salt_of(self._users.secret, self._mechanism, token_id)

        def derive() -> Outcome:
            salted = salted_password(self._algorithm, password, salt, ITERATIONS_MIN)
            return self._challenge(verifier_of(self._algorithm, salted, salt, ITERATIONS_MIN))

        return Work(derive)

    def _unknown(self, user: str) -> ScramVerifier:
        return unknown_user(self._users.secret, self._mechanism, user)

    def _challenge(self, verifier: ScramVerifier) -> Challenge:
        assert self._first is not None
        self._verifier = verifier
        nonce = self._first.nonce + self._nonce
        self._server_first = f"r={nonce},s={base64(verifier.salt)},i={verifier.iterations}".encode()
        return Challenge(self._server_first)

    def _finish(self, first: ClientFirst, final: ClientFinal) -> Accepted:
        verifier = self._verifier
        assert verifier is not None
        # Java and librdkafka send the base64 of "n,," whatever their header was.
        if final.channel_binding not in (b"n,,", first.gs2_header):
            raise AuthenticationFailed(f"{self._mechanism}: another GS2 header than before")
        if not hmac.compare_digest(final.nonce.encode(), (first.nonce + self._nonce).encode()):
            raise AuthenticationFailed(f"{self._mechanism}: another nonce than before")
        auth_message = b",".join((first.bare, self._server_first, final.without_proof))
        is_right = is_proof(self._algorithm, verifier, final.proof, auth_message)
        if not is_right or self._accepted is None:
            raise AuthenticationFailed(
                f"{self._mechanism}: wrong user name or password, user {shown(first.user)}"
            )
        signature = server_signature(self._algorithm, verifier.server_key, auth_message)
        return self._accepted._replace(token=f"v={base64(signature)}".encode())


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The secret of a delegation token, as Kafka derives it."""
    return hmac.digest(secret_key.encode(), token_id.encode(), hashlib.sha512)
