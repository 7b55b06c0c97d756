"""Parts of a fetch response, for consumers and followers alike."""

from collections.abc import Iterable
from typing import Any

from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchPartition, PartitionData
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.disk import Slice


class FetchedTopics:
    """The responses of partitions, by topic, in the order in which they are added."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], FetchableTopicResponse] = {}

    def add(self, results: Iterable[tuple[str, bytes, PartitionData]]) -> None:
        """Add the responses of these partitions."""
        found = self._found
        topic: FetchableTopicResponse | None = None
        for name, topic_id, data in results:
            if topic is None or topic.topic != name or topic.topic_id != topic_id:
                topic = found.get((name, topic_id))
                if topic is None:
                    topic = found[name, topic_id] = FetchableTopicResponse(name, topic_id)
            topic.partitions.append(data)

    def responses(self) -> list[FetchableTopicResponse]:
        """What was added."""
        return list(self._found.values())


def topics_of(results: Iterable[tuple[str, bytes, PartitionData]]) -> list[FetchableTopicResponse]:
    """The responses of partitions, by topic, in their order."""
    topics = FetchedTopics()
    topics.add(results)
    return topics.responses()


def records_of(found: Slice) -> Any:
    """The records of a partition as the codec takes them."""
    if len(found.parts) == 1 and type(found.parts[0]) is bytes:
        return found.parts[0]
    return found if found.parts else b""


def size_of(records: Any) -> int:
    """The size of the records of a partition."""
    return records.size_bytes if isinstance(records, Slice) else len(records)


def diverging_epoch(partition: ReplicatedLog, asked: FetchPartition) -> EpochEndOffset | None:
    """The epoch and offset at which the reader's log diverges (KIP-595), or None."""
    epoch, end_offset = partition.log.epoch_end(asked.last_fetched_epoch)
    if epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {asked.last_fetched_epoch} precedes the log")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None
