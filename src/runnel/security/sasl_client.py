"""The client's side of SASL: what to send, and whether the server has proved itself. No I/O here.

    mechanism = client_mechanism("SCRAM-SHA-256", Credentials("alice", "secret"), nonce)
    send mechanism.first(), then for each token received mechanism.respond(token), until it is None

Every mechanism of Kafka lets the client begin. A server that fails the exchange says so outside of it, by an
error code or by closing the connection; `SaslFailed` means that the client does not trust the server.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from runnel.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    TOKEN_EXTENSION,
    MalformedScram,
    base64,
    client_proof,
    escaped,
    read_server_final,
    read_server_first,
    salted_password,
    server_signature,
    verifier_of,
)

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM_HASHES, OAUTHBEARER)
"""The mechanisms that both sides support."""

_OAUTH_SEPARATOR = "\x01"


class SaslFailed(Exception):
    """The server did not prove that it knows the password, or its message is malformed."""


@dataclass(slots=True)
class Credentials:
    """What a client authenticates with. Its secrets are not shown."""

    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """The name is the id of a delegation token, the password its HMAC (KIP-48)."""
    token: str = field(default="", repr=False)
    """The JWT of OAUTHBEARER."""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    """SASL extensions of OAUTHBEARER (KIP-342)."""
    _salted: tuple[tuple[str, bytes, int], bytes] | None = field(default=None, repr=False, compare=False)

    def salted_password(self, algorithm: str, salt: bytes, iterations: int) -> bytes:
        """The password's key; the last one is kept, so that reconnecting is cheap."""
        question = (algorithm, salt, iterations)
        if self._salted is None or self._salted[0] != question:
            self._salted = question, salted_password(algorithm, self.password, salt, iterations)
        return self._salted[1]


class ClientMechanism(Protocol):
    """One authentication with one mechanism."""

    def first(self) -> bytes:
        """The token that begins the exchange."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to a token of the server; None if the exchange is complete. Raises SaslFailed."""
        ...


def client_mechanism(mechanism: str, credentials: Credentials, nonce: str) -> ClientMechanism:
    """Begin an authentication; the nonce is fresh and random, printable and without commas."""
    if mechanism == PLAIN:
        return PlainClient(credentials)
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(credentials)
    if mechanism in SCRAM_HASHES:
        return ScramClient(SCRAM_HASHES[mechanism], credentials, nonce)
    raise ValueError(f"unknown SASL mechanism {mechanism}: supported are {', '.join(MECHANISMS)}")


class PlainClient:
    """PLAIN (RFC 4616): the password itself, so the connection should be encrypted."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        """Name and password; no other identity is requested."""
        return f"\0{self._credentials.username}\0{self._credentials.password}".encode()

    def respond(self, challenge: bytes) -> None:
        """The server answers with nothing."""


class ScramClient:
    """SCRAM (RFC 5802): both sides prove that they know the password or its verifier."""

    def __init__(self, algorithm: str, credentials: Credentials, nonce: str) -> None:
        self._algorithm = algorithm
        self._credentials = credentials
        self._nonce = nonce
        extension = f",{TOKEN_EXTENSION}=true" if credentials.is_token else ""
        self._bare = f"n={escaped(credentials.username)},r={nonce}{extension}"
        self._expected_signature = b""

    def first(self) -> bytes:
        """The client-first message."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """The client-final message; then the server's signature is checked."""
        try:
            if self._expected_signature:
                signature = read_server_final(challenge)
                if not hmac.compare_digest(signature, self._expected_signature):
                    raise SaslFailed("the server does not know the password: its signature is wrong")
                return None
            return self._final(challenge)
        except MalformedScram as error:
            raise SaslFailed(f"the server sent {error}") from None

    def _final(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = read_server_first(challenge)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslFailed("the server did not extend the nonce")
        # Few iterations would let a false server try passwords, many would keep this client busy.
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslFailed(f"{iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salted = self._credentials.salted_password(self._algorithm, salt, iterations)
        final = f"c=biws,r={nonce}"
        auth_message = b",".join((self._bare.encode(), challenge, final.encode()))
        server_key = verifier_of(self._algorithm, salted, salt, iterations).server_key
        self._expected_signature = server_signature(self._algorithm, server_key, auth_message)
        proof = client_proof(self._algorithm, salted, auth_message)
        return f"{final},p={base64(proof)}".encode()


class OAuthBearerClient:
    """OAUTHBEARER (RFC 7628): a signed token of an identity provider."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        """The token, and the extensions."""
        pairs = {"auth": f"Bearer {self._credentials.token}", **self._credentials.extensions}
        fields = (f"{name}={value}{_OAUTH_SEPARATOR}" for name, value in pairs.items())
        return f"n,,{_OAUTH_SEPARATOR}{''.join(fields)}{_OAUTH_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Complete, unless the server explains why it fails: it ends the exchange after one more token."""
        return _OAUTH_SEPARATOR.encode() if challenge else None
