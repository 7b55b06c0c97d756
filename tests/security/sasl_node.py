"""A broker with one open listener and one with SASL, both on loopback, for tests with real sockets."""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runnel.client.loop_thread import LoopThread, fastest_loop
from runnel.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.registry import api
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.security.sasl_client import Credentials, client_mechanism
from runnel.security.scram import SCRAM_HASHES, SCRAM_MECHANISM_CODES, salted_password
from runnel.server.node import Node
from runnel.testing import SETTINGS
from runnel.wire import Request, decode
from runnel.wire.frame import has_flexible_header, request_frame

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_USERS = {"bob": "bob-secret"}
PASSWORDS = {"alice": "alice-secret", **SCRAM_USERS}

SASL_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_LOGIN} required user_alice="alice-secret";'
    ),
    "connection.failed.authentication.delay.ms": "10",
    "delegation.token.secret.key": "the secret of tokens",
}


@contextmanager
def sasl_node(folder: str, settings: Mapping[str, str] | None = None) -> Iterator[Node]:
    """A running broker with the users of this module."""
    node = Node({**SETTINGS, **SASL_SETTINGS, "log.dirs": folder, **(settings or {})})
    thread = LoopThread("broker", fastest_loop)
    try:
        thread.call(node.start())
        try:
            with Caller(node.ports["PLAINTEXT"]) as caller:
                for mechanism in SCRAM_HASHES:
                    caller.add_users(mechanism, SCRAM_USERS)
            yield node
        finally:
            thread.call(node.stop())
    finally:
        thread.close()


class Closed(Exception):
    """The broker closed the connection."""


class Caller:
    """A client that sends any request in any state, and says what it receives."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._next_id = 0

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        """Frames without their sizes, in one segment."""
        try:
            self._socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self) -> bytes:
        """The next frame."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed
            data += piece
        return data

    def frame(self, request: Request, version: int) -> bytes:
        """A request with its header."""
        self._next_id += 1
        return b"".join(request_frame(request, version, self._next_id, "test"))[4:]

    def decoded(self, request: Request, version: int, frame: bytes) -> Any:
        """A response without its header."""
        response = api(request.api_key).response
        position = 5 if has_flexible_header(response, version) else 4
        return decode(response, version, memoryview(frame), position)

    def call(self, request: Request, version: int | None = None) -> Any:
        """Send a request and wait for its response."""
        version = request.versions[-1] if version is None else version
        self.send(self.frame(request, version))
        return self.decoded(request, version, self.receive())

    def add_users(self, mechanism: str, passwords: Mapping[str, str]) -> None:
        """Store SCRAM credentials."""
        upsertions = [
            ScramCredentialUpsertion(
                user,
                SCRAM_MECHANISM_CODES[mechanism],
                4096,
                b"salt of the user",
                salted_password(SCRAM_HASHES[mechanism], password, b"salt of the user", 4096),
            )
            for user, password in passwords.items()
        ]
        response = self.call(AlterUserScramCredentialsRequest(upsertions=upsertions))
        assert [result.error_code for result in response.results] == [0] * len(upsertions)

    def versions(self, version: int = 3) -> Any:
        """ApiVersions."""
        return self.call(ApiVersionsRequest("test", "1"), version)

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        """SaslHandshake."""
        return self.call(SaslHandshakeRequest(mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        """SaslAuthenticate."""
        response = self.call(SaslAuthenticateRequest(token), version)
        assert isinstance(response, SaslAuthenticateResponse)
        return response

    def log_in(
        self, mechanism: str, credentials: Credentials, *, handshakes: bool = True
    ) -> SaslAuthenticateResponse:
        """A whole exchange; returns its last response."""
        if handshakes:
            self.handshake(mechanism)
        client = client_mechanism(mechanism, credentials, "client")
        token: bytes | None = client.first()
        while token is not None:
            response = self.authenticate(token)
            if response.error_code:
                break
            token = client.respond(bytes(response.auth_bytes))
        return response
