"""Message ids, which acknowledge, and cursors, which resume. Both are opaque to clients.

They contain no secret: rights on the topic and the group decide what a client may do with one.

    message id   version, flags, topic id, partition, offset, group   in base64url
    cursor       v1.<topic id>.<partition>-<offset>.<partition>-<offset>…

The topic id detects a topic that was deleted and created again.
"""

import base64
import re
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from runnel.batch.errors import CorruptBatch
from runnel.batch.varint import encode_varint, read_varint
from runnel.gateway.http.problems import Problem

VERSION = 1
REPLAYED = 1
ID_CHARACTERS_MAX = 1_000
OFFSET_MAX = 2**63 - 2
"""The offset after it, which an ack commits, is an offset, too."""

PARTITION_MAX = 2**31 - 1
TOPIC_ID_BYTES = 16
RECREATED = "the topic was deleted and recreated since: start again with an offset"
PARTITIONS_KEPT = 1_000
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_POSITION = re.compile(r"(\d{1,10})-(\d{1,19})")


@dataclass(frozen=True, slots=True)
class MessageId:
    """A message, and the group that it was delivered to, if any."""

    topic_id: bytes
    partition: int
    offset: int
    group: str = ""
    is_replayed: bool = False
    """Delivered by a replay, which does not move the group."""

    def text(self) -> str:
        """The id as clients see it."""
        return message_ids(self.topic_id, self.partition, self.group, self.is_replayed).text(self.offset)


class MessageIds:
    """The ids of the messages of one partition, which differ in their offset."""

    __slots__ = ("_after", "_before")

    def __init__(self, topic_id: bytes, partition: int, group: str, is_replayed: bool) -> None:
        flags = REPLAYED if is_replayed else 0
        self._before = bytes((VERSION, flags)) + topic_id + encode_varint(partition)
        self._after = group.encode()

    def text(self, offset: int) -> str:
        """The id of a message as clients see it."""
        data = b2a_base64(self._before + encode_varint(offset) + self._after, newline=False)
        return data.translate(_URL_SAFE).rstrip(b"=").decode()


@lru_cache(maxsize=PARTITIONS_KEPT)
def message_ids(topic_id: bytes, partition: int, group: str = "", is_replayed: bool = False) -> MessageIds:
    """The ids of the messages of a partition, as a group reads them if one is named."""
    return MessageIds(topic_id, partition, group, is_replayed)


def read_message_id(text: str) -> MessageId:
    """Parse an id; 422 if it is malformed."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if data[0] != VERSION or data[1] > REPLAYED:
            raise ValueError(text)
        topic_id = data[2 : 2 + TOPIC_ID_BYTES]
        partition, position = read_varint(data, 2 + TOPIC_ID_BYTES)
        offset, position = read_varint(data, position)
        group = data[position:].decode()
    except (ValueError, IndexError, CorruptBatch):
        raise Problem(422, "this is not the id of a message") from None
    if not 0 <= partition <= PARTITION_MAX or not 0 <= offset <= OFFSET_MAX:
        raise Problem(422, "this is not the id of a message")
    return MessageId(topic_id, partition, offset, group, data[1] == REPLAYED)


class Cursor:
    """Positions in all partitions of a topic, as a text that changes with every message."""

    def __init__(self, topic_id: bytes, positions: Mapping[int, int]) -> None:
        self._head = f"v1.{_topic_text(topic_id)}"
        self.positions = dict(positions)
        self._parts = {number: f".{number}-{offset}" for number, offset in sorted(positions.items())}

    def advance(self, partition: int, offset: int) -> None:
        """The next message of a partition is this one."""
        self.positions[partition] = offset
        self._parts[partition] = f".{partition}-{offset}"

    def text(self) -> str:
        """The cursor as clients see it."""
        return self._head + "".join(self._parts.values())


def read_cursor(text: str, topic_id: bytes) -> dict[int, int]:
    """The positions of a cursor; 409 if its topic was recreated since, 400 if it is malformed."""
    version, _, rest = text.partition(".")
    topic, *parts = rest.split(".")
    found = [_POSITION.fullmatch(part) for part in parts]
    if version != "v1" or not all(found):
        raise Problem(400, "the cursor is malformed")
    if topic != _topic_text(topic_id):
        raise Problem(409, RECREATED)
    positions = {int(match[1]): int(match[2]) for match in found if match is not None}
    if any(offset > OFFSET_MAX or number > PARTITION_MAX for number, offset in positions.items()):
        raise Problem(400, "the cursor is malformed")
    return positions


def _topic_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
