"""Throttled replication, as in Kafka: a rate per broker and direction, and the replicas that it applies to.

    leader.replication.throttled.rate     bytes per second to the followers of throttled replicas
    follower.replication.throttled.rate   bytes per second that throttled replicas fetch
    …throttled.replicas of a topic        partition:broker pairs, or * for all

All records of these replicas count, but only replicas that are not in sync wait: a reassignment that is
throttled slows down neither producers nor the replicas that keep up.
"""

from typing import TYPE_CHECKING

from runnel.model.ids import TopicPartition
from runnel.replica.quota import UNLIMITED, ReplicationQuota

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

ALL = "*"

RESPONSES_PER_SECOND = 4
"""A response has at most this part of what a second allows, so that others are not delayed by it."""
RESPONSE_BYTES_MIN = 64 * 1024

DELAY_MS_MAX = 1000
"""A throttled replica tries again after this time at the latest: the rate may have been changed."""


class ReplicationThrottle:
    """One direction, of one broker."""

    def __init__(self, broker: "Broker", direction: str) -> None:
        self._broker = broker
        self._rate_setting = f"{direction}.replication.throttled.rate"
        self._replicas_setting = f"{direction}.replication.throttled.replicas"
        self._quota = ReplicationQuota()
        self._throttled: dict[str, frozenset[int] | None] = {}
        """The throttled partitions of this broker by topic; None for all."""

    def topic_changed(self, topic: str) -> None:
        """The settings of a topic have changed, or it was deleted."""
        self._throttled.pop(topic, None)

    def applies_to(self, name: TopicPartition) -> bool:
        """Is this replica throttled?"""
        rate: int = self._broker.settings[self._rate_setting]
        if rate == UNLIMITED:
            return False
        self._quota.rate = rate
        topic = name.topic
        if topic not in self._throttled:
            self._throttled[topic] = self._partitions_of(topic)
        partitions = self._throttled[topic]
        return partitions is None or name.partition in partitions

    @property
    def is_exceeded(self) -> bool:
        """Must replicas to which it applies wait, unless they are in sync?"""
        return self._quota.is_exceeded(self._broker.clock.monotonic_ms())

    @property
    def delay_ms(self) -> int:
        """How long they wait; 0 if they need not."""
        delay_ms = self._quota.delay_ms(self._broker.clock.monotonic_ms())
        return min(delay_ms, DELAY_MS_MAX) if delay_ms >= 0 else DELAY_MS_MAX

    @property
    def response_bytes_max(self) -> int:
        """The maximum size of their records in one response."""
        return max(self._quota.rate // RESPONSES_PER_SECOND, RESPONSE_BYTES_MIN)

    def record(self, size_bytes: int) -> None:
        """Records of a replica to which it applies were replicated."""
        self._quota.record(size_bytes, self._broker.clock.monotonic_ms())

    def _partitions_of(self, topic: str) -> frozenset[int] | None:
        """Those that are throttled on this broker."""
        text = self._broker.metadata.image.topic_configs(topic).get(self._replicas_setting, "")
        pairs = [pair.strip().partition(":") for pair in text.split(",") if pair.strip()]
        if any(partition == ALL for partition, _, _ in pairs):
            return None
        node = str(self._broker.node_id)
        return frozenset(int(partition) for partition, _, broker in pairs if broker == node)
