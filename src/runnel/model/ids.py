"""Identifiers: topic partitions and 128-bit ids."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

NO_ID = bytes(16)
"""Kafka's zero UUID: no id."""
METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The topic id of the metadata log, in every cluster."""
NO_LEADER = -1
"""The leader id of a partition without a leader."""
NO_BROKER_EPOCH = -1
"""The epoch of a broker that is not registered, or of which it is not known."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SnapshotId(NamedTuple):
    """A snapshot of a log: the offset after the last record in it, and that record's epoch."""

    end_offset: int
    epoch: int


def id_text(raw: bytes) -> str:
    """Kafka's printed form of an id: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> bytes:
    """The sixteen bytes of a printed id; ValueError if it is malformed."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 128-bit id")
    return raw
