"""How coordinators write to their topics: the key tells the kind of record, the value tells its own version.

key    int16 kind of record, then the key
value  int16 version, then the value; no value at all says that the key is gone
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from runnel.wire import Buffer, Data, MalformedMessage, decode, encoded

_PREFIX = Layout(">h")

RecordTypes = dict[int, tuple[type[Data], type[Data]]]


@dataclass(slots=True)
class CoordinatorRecord:
    """One fact in a coordinator's topic; without a value it says that the key is gone."""

    key: Data
    value: Data | None


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a kind, or of a version, that this release has no declaration for."""

    kind: int
    version: int | None
    """None when the kind itself is unknown."""


def record_types(*pairs: tuple[type[Data], type[Data]]) -> RecordTypes:
    """Kinds of records by number, from (key, value) declarations."""
    return {key.api_key: (key, value) for key, value in pairs}


def encode_key(key: Data) -> bytes:
    """The bytes of a record's key."""
    return _PREFIX.pack(key.api_key) + encoded(key, 0)


def encode_value(value: Data, version: int | None = None) -> bytes:
    """The bytes of a record's value, in its newest version unless told otherwise."""
    version = value.versions[-1] if version is None else version
    return _PREFIX.pack(version) + encoded(value, version)


def read_record(types: RecordTypes, key: Buffer, value: Buffer | None) -> CoordinatorRecord | UnknownRecord:
    """Read a record back; what this release cannot know is told apart, damage is MalformedMessage."""
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
        raise MalformedMessage("a coordinator record is too short for its kind and version")
    prefix: int = _PREFIX.unpack_from(buffer)[0]
    return prefix
