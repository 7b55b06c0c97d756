"""Encoding of coordinator records: the key has a record type, the value its version.

key    int16 record type, then the key
value  int16 version, then the value; a null value is a tombstone
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from runnel.wire import Buffer, Data, MalformedMessage, decode, encoded

_PREFIX = Layout(">h")

RecordTypes = dict[int, tuple[type[Data], type[Data]]]


@dataclass(slots=True)
class CoordinatorRecord:
    """A decoded record of a coordinator's topic; without a value it is a tombstone."""

    key: Data
    value: Data | None


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a type or version that this release does not know."""

    kind: int
    version: int | None
    """None if the type itself is unknown."""


def record_types(*pairs: tuple[type[Data], type[Data]]) -> RecordTypes:
    """Record types by number, from (key, value) declarations."""
    return {key.api_key: (key, value) for key, value in pairs}


def encode_key(key: Data) -> bytes:
    """Encode a record's key."""
    return _PREFIX.pack(key.api_key) + encoded(key, 0)


def encode_value(value: Data, version: int | None = None) -> bytes:
    """Encode a record's value, in its newest version by default."""
    version = value.versions[-1] if version is None else version
    return _PREFIX.pack(version) + encoded(value, version)


def read_record(types: RecordTypes, key: Buffer, value: Buffer | None) -> CoordinatorRecord | UnknownRecord:
    """Decode a record; UnknownRecord for unknown types and versions, MalformedMessage if it is corrupt."""
    # Copies, because decoded fields are views and would keep the whole batch in memory.
    key = bytes(key)
    kind = _prefix(key)
    if kind not in types:
        return UnknownRecord(kind, None)
    key_type, value_type = types[kind]
    decoded_key = decode(key_type, 0, key, 2)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    value = bytes(value)
    version = _prefix(value)
    if version not in value_type.versions:
        return UnknownRecord(kind, version)
    return CoordinatorRecord(decoded_key, decode(value_type, version, value, 2))


def _prefix(buffer: bytes) -> int:
    if len(buffer) < 2:
        raise MalformedMessage("a coordinator record is too short for its type and version")
    prefix: int = _PREFIX.unpack_from(buffer)[0]
    return prefix
