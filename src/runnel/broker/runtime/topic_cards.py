"""Topics as Metadata shows them, made once per image version and shared by all answers."""

from runnel.controller.image import MetadataImage
from runnel.controller.values import NO_LEADER, PartitionState, Topic
from runnel.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from runnel.model.errors import ErrorCode


class TopicCards:
    """One card per topic that somebody asked for, until the image changes."""

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._version = -1
        self._cards: dict[str, MetadataResponseTopic] = {}
        self.listings: dict[tuple[object, ...], bytes] = {}
        """Encoded answers about all topics, by what else was asked."""

    def refresh(self, image: MetadataImage) -> None:
        """Forget what an older image said."""
        if image.version != self._version or image is not self._image:
            self._image = image
            self._version = image.version
            self._cards = {}
            self.listings = {}

    def named(self, name: str) -> MetadataResponseTopic | None:
        """The card of a topic, if there is such a topic."""
        card = self._cards.get(name)
        if card is None:
            topic = self._image.topics.get(name)
            if topic is not None:
                card = self._cards[name] = _card(topic)
        return card

    def all(self) -> list[MetadataResponseTopic]:
        """The cards of all topics."""
        return [card for name in self._image.topics if (card := self.named(name)) is not None]


def _card(topic: Topic) -> MetadataResponseTopic:
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
