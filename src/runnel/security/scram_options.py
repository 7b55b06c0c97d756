"""Credentials in the syntax of kafka-storage.sh: SCRAM-SHA-256=[name=alice,password=alice-secret]."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import NamedTuple

from runnel.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    ScramVerifier,
    salted_password,
    verifier_of,
)

_ARGUMENT = re.compile(r"\s*([A-Z0-9-]+)\s*=\s*\[(.*)\]\s*", re.DOTALL)
_FIELD = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^,"]*?))\s*(?:,|$)', re.DOTALL)
_NAMES = ("name", "password", "salt", "iterations", "saltedpassword")


class InvalidScramOption(ValueError):
    """An argument that is not understood; its text is not repeated, it contains a password."""


class ScramOption(NamedTuple):
    """A user with a credential for one mechanism."""

    name: str
    mechanism: str
    verifier: ScramVerifier


def read_scram_option(text: str, salt: bytes) -> ScramOption:
    """Parse an argument; the salt is used unless the argument has one. Raises InvalidScramOption."""
    found = _ARGUMENT.fullmatch(text)
    if found is None or found[1] not in SCRAM_HASHES:
        raise InvalidScramOption(
            f"expected MECHANISM=[name=USER,password=PASSWORD]; mechanisms are {' and '.join(SCRAM_HASHES)}"
        )
    mechanism, fields = found[1], _fields(found[2])
    if not fields.get("name"):
        raise InvalidScramOption("name is missing")
    if ("password" in fields) == ("saltedpassword" in fields):
        raise InvalidScramOption("exactly one of password and saltedpassword is needed")
    iterations_text = fields.get("iterations", str(ITERATIONS_MIN))
    iterations = int(iterations_text) if iterations_text.isdecimal() and len(iterations_text) < 9 else 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidScramOption(f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if "salt" in fields:
        salt = _decoded("salt", fields["salt"])
    elif "saltedpassword" in fields:
        raise InvalidScramOption("saltedpassword needs its salt")
    algorithm = SCRAM_HASHES[mechanism]
    if "saltedpassword" in fields:
        salted = _decoded("saltedpassword", fields["saltedpassword"])
    else:
        salted = salted_password(algorithm, fields["password"], salt, iterations)
    return ScramOption(fields["name"], mechanism, verifier_of(algorithm, salted, salt, iterations))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None:
            raise InvalidScramOption("expected name=value pairs, separated by commas")
        if found[1] not in _NAMES or found[1] in fields:
            raise InvalidScramOption(f"expected each of {', '.join(_NAMES)} at most once")
        fields[found[1]] = found[3] if found[2] is None else found[2]
        position = found.end()
    if any(not value for value in fields.values()):
        raise InvalidScramOption("a value is empty")
    return fields


def _decoded(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise InvalidScramOption(f"{name} is not base64") from None
