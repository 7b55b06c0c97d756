"""What a group shard may know of the cluster it works in: topics, and the settings of single groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol


class TopicIdPartition(NamedTuple):
    """One partition, by the id of its topic: a topic that is made anew under an old name is another one."""

    topic_id: bytes
    number: int


Partitions = frozenset[TopicIdPartition]

NO_PARTITIONS: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as assignors see it."""

    name: str
    id: bytes
    racks: tuple[frozenset[str], ...]
    """For each partition, the racks that hold a copy of it."""

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class Cluster(Protocol):
    """The cluster's metadata as it is now."""

    @property
    def version(self) -> int:
        """Equal versions say that nothing has changed."""
        ...

    def topic(self, name: str) -> TopicMetadata | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The topics that a regular expression matches as a whole, in order. Raises BadPattern."""
        ...

    def group_setting(self, group_id: str, name: str) -> int:
        """A setting of one group, by its name in Kafka; the broker's default if the group has none."""
        ...


class InvalidPattern(ValueError):
    """Not a regular expression that can be used."""


def metadata_hash(topics: Iterable[TopicMetadata]) -> int:
    """A number that changes when topics come, go, grow or move between racks; 0 if there are none."""
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
