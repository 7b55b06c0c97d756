"""The arithmetic and the messages of SCRAM (RFC 5802, RFC 7677), for both sides of an exchange.

    client-first   n,[a=authzid],n=user,r=nonce[,extensions]
    server-first   r=both nonces,s=salt,i=iterations
    client-final   c=channel binding,r=both nonces,p=proof
    server-final   v=signature   or   e=error

A server stores keys that verify a proof (`ScramVerifier`), which do not let anyone authenticate elsewhere.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism that Kafka knows."""

SCRAM_MECHANISM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's number of each mechanism, in requests and records."""

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384

SALT_CHARACTERS = 26
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

TOKEN_EXTENSION = "tokenauth"
"""The extension that says: the user is the id of a delegation token (KIP-48)."""


class MalformedScram(Exception):
    """A message breaks the grammar of RFC 5802; its text is not repeated here, it may hold secrets."""


class ScramVerifier(NamedTuple):
    """What a server stores of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramVerifier(iterations={self.iterations})"


class ClientFirst(NamedTuple):
    """The first message of a client."""

    gs2_header: bytes
    bare: bytes
    """The message without the header, as received: the proof covers every byte."""
    authzid: str
    user: str
    nonce: str
    extensions: dict[str, str]


class ClientFinal(NamedTuple):
    """The last message of a client."""

    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: bytes


class ServerFirst(NamedTuple):
    """The challenge of a server."""

    nonce: str
    salt: bytes
    iterations: int


def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The key that a password becomes. It takes milliseconds, by design."""
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def verifier_of(algorithm: str, salted: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """What a server stores of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return ScramVerifier(
        salt,
        iterations,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", algorithm),
    )


def client_proof(algorithm: str, salted: bytes, auth_message: bytes) -> bytes:
    """Proves that the client knows the password, without revealing it."""
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return _xor(client_key, hmac.digest(stored_key, auth_message, algorithm))


def is_proof(algorithm: str, verifier: ScramVerifier, proof: bytes, auth_message: bytes) -> bool:
    """Whether a proof was made with the password of the verifier."""
    signature = hmac.digest(verifier.stored_key, auth_message, algorithm)
    if len(proof) != len(signature):
        return False
    client_key = _xor(proof, signature)
    return hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), verifier.stored_key)


def server_signature(algorithm: str, server_key: bytes, auth_message: bytes) -> bytes:
    """Proves that the server knows the verifier."""
    return hmac.digest(server_key, auth_message, algorithm)


def new_salt(entropy: bytes) -> bytes:
    """A salt in the form of Kafka's tools: digits of base 36."""
    number, digits = int.from_bytes(entropy, "big"), []
    for _ in range(SALT_CHARACTERS):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits).encode()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escaped(name: str) -> str:
    """A user name as it is sent: `=` and `,` are special there."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """A user name as it is meant."""
    plain = name.replace("=2C", ",").replace("=2c", ",")
    if "=" in plain.replace("=3D", "").replace("=3d", ""):
        raise MalformedScram("a user name with an unknown escape")
    return plain.replace("=3D", "=").replace("=3d", "=")


def read_client_first(message: bytes) -> ClientFirst:
    """Parse a client-first message."""
    flag, *rest = _text(message).split(",", 2)
    if len(rest) != 2 or flag not in ("n", "y"):
        raise MalformedScram("a client-first message without GS2 header, or with channel binding")
    authzid, bare = rest
    if authzid and not authzid.startswith("a="):
        raise MalformedScram("an unknown field in the GS2 header")
    fields = bare.split(",")
    if len(fields) < 2:
        raise MalformedScram("a client-first message without nonce")
    user, nonce = unescaped(_field("n", fields[0])), _field("r", fields[1])
    return ClientFirst(
        gs2_header=f"{flag},{authzid},".encode(),
        bare=bare.encode(),
        authzid=unescaped(authzid.removeprefix("a=")),
        user=user,
        nonce=nonce,
        extensions=_extensions(fields[2:]),
    )


def read_server_first(message: bytes) -> ServerFirst:
    """Parse a server-first message."""
    fields = _text(message).split(",")
    if len(fields) < 3:
        raise MalformedScram("a server-first message with less than three fields")
    iterations = _field("i", fields[2])
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 9:
        raise MalformedScram("iterations that are not a number")
    return ServerFirst(_field("r", fields[0]), _base64(_field("s", fields[1])), int(iterations))


def read_client_final(message: bytes) -> ClientFinal:
    """Parse a client-final message."""
    without_proof, separator, proof = _text(message).rpartition(",p=")
    fields = without_proof.split(",")
    if not separator or len(fields) < 2:
        raise MalformedScram("a client-final message without proof")
    return ClientFinal(
        channel_binding=_base64(_field("c", fields[0])),
        nonce=_field("r", fields[1]),
        proof=_base64(proof),
        without_proof=without_proof.encode(),
    )


def read_server_final(message: bytes) -> bytes:
    """The signature in a server-final message."""
    return _base64(_field("v", _text(message).split(",")[0]))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedScram("a message that is not UTF-8") from None


def _field(name: str, field: str) -> str:
    if not field.startswith(f"{name}=") or len(field) == 2:
        raise MalformedScram(f"the field {name} is missing")
    return field[2:]


def _extensions(fields: list[str]) -> dict[str, str]:
    pairs = [field.partition("=") for field in fields]
    if any(not name or not equals for name, equals, _ in pairs):
        raise MalformedScram("an extension without value")
    return {name: value for name, _, value in pairs}


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise MalformedScram("a field that is not base64") from None


def base64(value: bytes) -> str:
    """Bytes as SCRAM's messages carry them."""
    return b64encode(value).decode()
