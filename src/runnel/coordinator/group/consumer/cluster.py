"""The cluster metadata that a group shard uses: topics and group configs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol


class TopicIdPartition(NamedTuple):
    """A partition by topic id, which distinguishes recreated topics of the same name."""

    topic_id: bytes
    number: int


Partitions = frozenset[TopicIdPartition]

NO_PARTITIONS: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as input of assignors."""

    name: str
    id: bytes
    racks: tuple[frozenset[str], ...]
    """The racks of the replicas of each partition."""

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class Cluster(Protocol):
    """The current cluster metadata."""

    @property
    def version(self) -> int:
        """Equal versions mean equal metadata."""
        ...

    def topic(self, name: str) -> TopicMetadata | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The topics that a regular expression fully matches, in order. Raises BadPattern."""
        ...

    def group_setting(self, group_id: str, name: str) -> int:
        """A group config, or the broker's default."""
        ...


class InvalidPattern(ValueError):
    """An invalid or unsupported regular expression."""


def metadata_hash(topics: Iterable[TopicMetadata]) -> int:
    """A hash of topic ids, partition counts and racks; 0 without topics."""
    digest = blake2b(digest_size=8)
    is_empty = True
    for topic in sorted(topics, key=lambda topic: topic.name):
        is_empty = False
        _add(digest, [topic.name.encode(), topic.id])
        for racks in topic.racks:
            _add(digest, [rack.encode() for rack in sorted(racks)])
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)


def _add(digest: "blake2b", parts: Sequence[bytes]) -> None:
    digest.update(len(parts).to_bytes(4, "big"))
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
