"""The cluster metadata as used by group shards."""

from typing import TYPE_CHECKING

from runnel.broker.runtime.patterns import compiled
from runnel.controller.values import ConfigResource
from runnel.coordinator.group.consumer.cluster import InvalidPattern, TopicMetadata
from runnel.model.configs import ResourceType

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


class GroupCluster:
    """Current topics, racks and group settings."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics: dict[str, TopicMetadata] = {}
        self._topics_version = -1
        self._names: list[str] = []
        self._matches: dict[str, tuple[str, ...]] = {}
        """Pattern → topics, valid until topics are created or deleted."""

    @property
    def version(self) -> int:
        return self._broker.metadata.image.content_version

    def topic(self, name: str) -> TopicMetadata | None:
        image = self._broker.metadata.image
        if image.content_version != self._topics_version:
            self._topics.clear()
            self._topics_version = image.content_version
        known = self._topics.get(name)
        if known is None and name in image.topics:
            topic = image.topics[name]
            racks = {node_id: broker.rack for node_id, broker in image.brokers.items()}
            known = self._topics[name] = TopicMetadata(
                topic.name,
                topic.id,
                tuple(
                    frozenset(rack for node_id in state.replicas if (rack := racks.get(node_id)) is not None)
                    for state in topic.partitions
                ),
            )
        return known

    def name_of(self, topic_id: bytes) -> str | None:
        return self._broker.topic_name(topic_id)

    def matching(self, pattern: str) -> tuple[str, ...]:
        names = self._broker.metadata.image.names_in_order()
        if names is not self._names:
            self._names = names
            self._matches.clear()
        matches = self._matches.get(pattern)
        if matches is None:
            try:
                expression = compiled(pattern)
            except ValueError as error:
                raise InvalidPattern(f"invalid pattern {pattern}: {error}") from error
            matches = tuple(name for name in names if expression.fullmatch(name))
            self._matches[pattern] = matches
        return matches

    def group_setting(self, group_id: str, name: str) -> int:
        configs = self._broker.metadata.image.configs
        own = configs.get(ConfigResource(ResourceType.GROUP, group_id), {}).get(name)
        value: int = self._broker.settings[f"group.{name}"] if own is None else int(own)
        return value
