"""Parses offset commit records of __consumer_offsets."""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

OFFSETS_TOPIC = "__consumer_offsets"
_SHORT = Struct(">h")
_INT = Struct(">i")
_VERSION_AND_OFFSET = Struct(">hq")
_COMMIT_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class CommitKey:
    """The key of an offset commit record."""

    group: str
    topic: str
    partition: int


def read_key(key: bytes) -> CommitKey | None:
    """The key of a record; None if it is not an offset commit."""
    try:
        if _SHORT.unpack_from(key)[0] not in _COMMIT_VERSIONS:
            return None
        group, position = _text(key, 2)
        topic, position = _text(key, position)
        return CommitKey(group, topic, _INT.unpack_from(key, position)[0])
    except (StructError, UnicodeDecodeError):
        return None


def read_offset(value: bytes | None) -> int | None:
    """The committed offset, which every version of the value starts with; None for a tombstone."""
    try:
        return None if value is None else int(_VERSION_AND_OFFSET.unpack_from(value)[1])
    except StructError:
        return None


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + _SHORT.unpack_from(data, position)[0]
    if end > len(data):
        raise StructError("the string is truncated")
    return data[position + 2 : end].decode("utf-8"), end
