"""New leader epochs after an unclean shutdown, as Kafka's controller assigns them (KAFKA-18106).

A broker that was not closed cleanly may have lost the end of its logs, and will write other records at the
same offsets. In a new epoch, consumers that had read beyond the end notice that by KIP-320: their epoch is
fenced, and OffsetForLeaderEpoch returns where it ended.
"""

from collections.abc import Callable, Iterator

from runnel.controller.image import MetadataImage
from runnel.model.ids import TopicPartition
from runnel.schemas.metadata import PartitionChangeRecord

RECORDS_PER_CHANGE = 1000
"""Elections that are written together; they are independent, so a crash in between does no harm."""


def elections_after_unclean_start(
    image: MetadataImage, node_id: int, was_closed_cleanly: Callable[[TopicPartition], bool]
) -> Iterator[list[PartitionChangeRecord]]:
    """Changes that elect this node again for every partition that it leads and did not close cleanly."""
    records: list[PartitionChangeRecord] = []
    # A list, because the image changes while the caller carries these out.
    for topic in list(image.topics.values()):
        for index, state in enumerate(topic.partitions):
            if state.leader != node_id or was_closed_cleanly(TopicPartition(topic.name, index)):
                continue
            records.append(PartitionChangeRecord(index, topic.id, leader=node_id))
            if len(records) == RECORDS_PER_CHANGE:
                yield records
                records = []
    if records:
        yield records
