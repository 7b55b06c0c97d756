"""What groups committed, from the broker's internal topic of offsets: (key, value) of its records."""

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
    """Whose position in which partition."""

    group: str
    topic: str
    partition: int


def read_key(key: bytes) -> CommitKey | None:
    """The subject of a record, or None if it is about something else than a position."""
    try:
        if _SHORT.unpack_from(key)[0] not in _COMMIT_VERSIONS:
            return None
        group, position = _text(key, 2)
        topic, position = _text(key, position)
        return CommitKey(group, topic, _INT.unpack_from(key, position)[0])
    except (StructError, UnicodeDecodeError):
        return None


def read_offset(value: bytes | None) -> int | None:
    """The position; every version of the value begins with it. None where it was deleted."""
    try:
        return None if value is None else int(_VERSION_AND_OFFSET.unpack_from(value)[1])
    except StructError:
        return None


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + _SHORT.unpack_from(data, position)[0]
    if end > len(data):
        raise StructError("the text is cut off")
    return data[position + 2 : end].decode("utf-8"), end
