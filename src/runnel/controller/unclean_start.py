"""New leader epochs where records may have been lost, as Kafka's controller assigns them (KAFKA-18106).

A broker that was not closed cleanly may have lost the end of its logs, and will write other records at the
same offsets. In a new epoch, consumers that had read beyond the end notice that by KIP-320: their epoch is
fenced, and OffsetForLeaderEpoch returns where it ended.
"""

from collections.abc import Callable, Iterable, Iterator

from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult
from runnel.model.ids import TopicPartition
from runnel.schemas.metadata import PartitionChangeRecord


def closed_uncleanly(
    image: MetadataImage, node_id: int, was_closed_cleanly: Callable[[TopicPartition], bool]
) -> Iterator[TopicPartition]:
    """The partitions that this node leads and did not close cleanly."""
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if state.leader == node_id and not was_closed_cleanly(name):
                yield name


def decide_reelections(
    names: Iterable[TopicPartition], node_id: int, image: MetadataImage
) -> ControllerResult[None]:
    """Elect this node again for each of these partitions that it still leads."""
    records: list[PartitionChangeRecord] = []
    for name in names:
        state = image.partition(*name)
        # Else the topic was deleted meanwhile.
        if state is not None and state.leader == node_id:
            topic = image.topics[name.topic]
            records.append(PartitionChangeRecord(name.partition, topic.id, leader=node_id))
    return ControllerResult([*records], None)
