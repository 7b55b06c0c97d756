"""In-memory cluster metadata."""

import re
from dataclasses import dataclass, field

from runnel.coordinator.group.consumer.cluster import InvalidPattern, TopicMetadata

DEFAULTS = {
    "consumer.session.timeout.ms": 45_000,
    "consumer.heartbeat.interval.ms": 5_000,
    "consumer.assignment.interval.ms": 0,
}


@dataclass
class FakeCluster:
    """The cluster metadata of group shards. Topic ids are sequential, so recreated topics have new ones."""

    version: int = 0
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=DEFAULTS.copy)
    made: int = 0

    def make(self, name: str, partition_count: int, racks: list[str] | None = None) -> bytes:
        """Create a topic with its partitions in these racks, round-robin; returns its id."""
        self.made += 1
        self.version += 1
        topic_id = self.made.to_bytes(16, "big")
        self.topics[name] = TopicMetadata(name, topic_id, _placed(partition_count, racks))
        return topic_id

    def grow(self, name: str, partition_count: int) -> None:
        self.version += 1
        self.topics[name] = TopicMetadata(name, self.topics[name].id, _placed(partition_count, None))

    def delete(self, name: str) -> None:
        self.version += 1
        del self.topics[name]

    def topic(self, name: str) -> TopicMetadata | None:
        return self.topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), None)

    def matching(self, pattern: str) -> tuple[str, ...]:
        try:
            return tuple(name for name in sorted(self.topics) if re.fullmatch(pattern, name))
        except re.error as error:
            raise InvalidPattern(str(error)) from error

    def group_setting(self, group_id: str, name: str) -> int:
        return self.settings[name]


def _placed(count: int, racks: list[str] | None) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({racks[number % len(racks)]} if racks else ()) for number in range(count))
