"""Cache of the topics in Metadata responses: built once per version of the image, shared by all responses."""

from runnel.controller.image import MetadataImage
from runnel.controller.values import PartitionState, Topic
from runnel.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_LEADER


class TopicMetadataCache:
    """Response entries of requested topics, valid until the image changes."""

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._version = -1
        self._entries: dict[str, MetadataResponseTopic] = {}
        self.listings: dict[tuple[object, ...], bytes] = {}
        """Encoded responses for all topics, by version and flags of the request."""

    def refresh(self, image: MetadataImage) -> None:
        """Drop entries of an older image."""
        if image.content_version != self._version or image is not self._image:
            self._image = image
            self._version = image.content_version
            self._entries = {}
            self.listings = {}

    def named(self, name: str) -> MetadataResponseTopic | None:
        """The entry of a topic, or None if it does not exist."""
        entry = self._entries.get(name)
        if entry is None:
            topic = self._image.topics.get(name)
            if topic is not None:
                entry = self._entries[name] = _entry(topic)
        return entry

    def all(self) -> list[MetadataResponseTopic]:
        """The entries of all topics."""
        return [entry for name in self._image.topics if (entry := self.named(name)) is not None]


def _entry(topic: Topic) -> MetadataResponseTopic:
    partitions = [_partition(index, state) for index, state in enumerate(topic.partitions)]
    return MetadataResponseTopic(0, topic.name, topic.id, topic.is_internal, partitions)


def _partition(index: int, state: PartitionState) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE.code if state.leader == NO_LEADER else 0,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[],
    )
