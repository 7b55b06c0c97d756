"""Mutated SASL exchanges: one step of a valid authentication is broken, as a frame or inside its token.

What follows the broken step is valid again. An authentication may succeed only if the credentials that were
received are correct.
"""

import asyncio
import base64
import binascii
import struct
from dataclasses import dataclass
from random import Random

from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.metadata import MetadataRequest
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.security.sasl_client import Credentials, SaslFailed, client_mechanism
from runnel.wire import MalformedMessage, decode
from tools.fuzz.attack import Connect, Streams, read_response
from tools.fuzz.mutate import EDGES, mutated
from tools.fuzz.secured.broker import frame
from tools.fuzz.secured.exchanges import BrokenExchanges

TOKEN_SHARE = 0.6
"""How many of the broken steps are tokens in a valid frame."""
STEPS_MAX = 4
SEPARATORS = [
    b"\0",
    b"\x01",
    b",",
    b"=",
    b"n,,",
    b"=2C",
    b"=3D",
    b"auth=",
    b"Bearer ",
    b".",
    b"\xff",
    b"a=admin",
]
_METADATA = frame(MetadataRequest([]), 4)


@dataclass(frozen=True, slots=True)
class Login:
    """A mechanism with valid credentials."""

    mechanism: str
    credentials: Credentials


def broken_token(chance: Random, token: bytes) -> bytes:
    """A token with a few bytes changed, removed, inserted or repeated."""
    body = bytearray(token)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(7):
            case 0 if body:
                body[at % len(body)] ^= 1 << chance.randrange(8)
            case 1:
                del body[at : at + chance.choice((1, 1, 4, 64))]
            case 2:
                body[at:at] = chance.choice(SEPARATORS)
            case 3:
                body[at:at] = chance.choice(EDGES)
            case 4:
                del body[at:]
            case 5:
                body[at:at] = body[: chance.choice((1, 8, 64))] * chance.choice((1, 2, 300))
            case _:
                body[at : at + 1] = chance.randbytes(chance.choice((0, 1, 20)))
    return bytes(body)


def has_same_credentials(mechanism: str, genuine: bytes, arrived: bytes) -> bool:
    """Whether a token that was changed in transit still contains the same credentials."""
    if arrived == genuine:
        return True
    if mechanism == "PLAIN":
        return arrived.split(b"\0")[1:] == genuine.split(b"\0")[1:]
    if mechanism == "OAUTHBEARER":
        signed, _, signature = _jwt(genuine).rpartition(b".")
        found, _, other = _jwt(arrived).rpartition(b".")
        return found == signed and _decoded(other) == _decoded(signature)
    # The proof of SCRAM covers everything but how it is written itself.
    head, is_final, proof = genuine.rpartition(b",p=")
    other_head, _, other_proof = arrived.rpartition(b",p=")
    return bool(is_final) and head == other_head and _decoded(proof) == _decoded(other_proof)


def _jwt(message: bytes) -> bytes:
    """The last token of a message, which counts, as in Kafka."""
    found = b""
    for part in message.split(b"\x01"):
        if part.lower().startswith(b"auth=bearer "):
            found = part[12:].strip()
    return found


def _decoded(text: bytes) -> bytes | None:
    try:
        return base64.urlsafe_b64decode(text.replace(b"+", b"-").replace(b"/", b"_") + b"==")
    except binascii.Error:
        return None


class BrokenSasl(BrokenExchanges):
    """SASL exchanges with one broken step; violations are those that succeeded with other credentials."""

    def __init__(self, connect: Connect, logins: list[Login], count: int, seed: int) -> None:
        super().__init__(count, seed)
        self._connect = connect
        self._logins = logins

    async def connect(self) -> Streams:
        return await self._connect()

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        chance = self.chance
        login = chance.choice(self._logins)
        client = client_mechanism(login.mechanism, login.credentials, f"nonce{chance.random()}")
        steps = {"PLAIN": 3, "OAUTHBEARER": 3}.get(login.mechanism, 4)
        broken = chance.randrange(steps)
        if chance.random() < 0.5:
            opening = frame(ApiVersionsRequest("fuzzer", "1"), chance.randrange(5))
            writer.write(self._broken(opening) if broken == 0 else opening)
            await read_response(reader)
        version = chance.choice((0, 1, 1))
        handshake = frame(SaslHandshakeRequest(login.mechanism), version)
        writer.write(self._broken(handshake) if broken == 1 else handshake)
        await read_response(reader)
        token: bytes | None = client.first()
        is_valid = True
        for number in range(2, 2 + STEPS_MAX):
            if token is None:
                break
            arrived = token
            if number == broken and chance.random() < TOKEN_SHARE:
                arrived = broken_token(chance, token)
                is_valid = has_same_credentials(login.mechanism, token, arrived)
                sent = _token_frame(arrived, version)
            else:
                sent = _token_frame(token, version)
                if number == broken:
                    sent = self._broken(sent)
            writer.write(sent)
            answer = _answer(await read_response(reader), version)
            if answer is None:
                return "denied"
            try:
                token = client.respond(answer)
            except SaslFailed:
                return "denied"
        writer.write(_METADATA)
        if (await read_response(reader))[4:8] != b"\0\0\0\0":
            return "denied"
        if not is_valid:
            self.violations.append(f"{login.mechanism}: {arrived!r} instead of the valid token")
        return "authenticated"

    def _broken(self, whole: bytes) -> bytes:
        return mutated(self.chance, [whole])


def _token_frame(token: bytes, version: int) -> bytes:
    if version == 0:
        return struct.pack(">i", len(token)) + token
    return frame(SaslAuthenticateRequest(token), 1)


def _answer(response: bytes, version: int) -> bytes | None:
    """The token of the server; None for an error."""
    if version == 0:
        return response
    try:
        decoded = decode(SaslAuthenticateResponse, 1, memoryview(response), 4)
    except MalformedMessage:
        # Of another API or version, as the request was changed to one.
        return None
    return None if decoded.error_code else bytes(decoded.auth_bytes)
