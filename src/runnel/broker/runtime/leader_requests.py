"""Requests to the leaders of other partitions, as consumers send them: any broker of Kafka answers them."""

from collections.abc import Iterable

from runnel.batch.header import walk_headers
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.model.errors import ApiError, ErrorCode

CONSUMER = -1
LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIMEOUT_MS = 10_000


def offsets_request(
    partitions: Iterable[tuple[str, int]], isolation: int, timestamp: int = LATEST
) -> ListOffsetsRequest:
    """A request for the ends of partitions, or for their offsets at a timestamp."""
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(index, timestamp=timestamp))
    return ListOffsetsRequest(CONSUMER, isolation, list(topics.values()), TIMEOUT_MS)


def offsets_of(
    response: ListOffsetsResponse,
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], ErrorCode]]:
    """The offsets of a response, and its errors, by partition."""
    found: dict[tuple[str, int], int] = {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in response.topics:
        for result in topic.partitions:
            name = (topic.name, result.partition_index)
            if result.error_code:
                errors[name] = ErrorCode.from_code(result.error_code)
            else:
                found[name] = result.offset
    return found, errors


def one_offset(response: ListOffsetsResponse) -> int:
    """The only offset of a response. Raises ApiError."""
    found, errors = offsets_of(response)
    for error in errors.values():
        raise ApiError(error, f"the leader returned {error.name}")
    (offset,) = found.values()
    return offset


def fetch_request(
    topic: str, index: int, topic_id: bytes, offset: int, isolation: int, max_bytes: int
) -> FetchRequest:
    """A request for batches from an offset on, at least one."""
    asked = FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=CONSUMER,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic, topic_id, [asked])],
    )


def batches_of(data: PartitionData) -> list[memoryview]:
    """The complete batches that were fetched."""
    records = memoryview(data.records or b"")
    return [records[at : at + header.size_bytes] for at, header in walk_headers(records)]


def aborted_of(data: PartitionData) -> list[tuple[int, int]]:
    """The (producer id, first offset) of aborted transactions in what was fetched."""
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]


def check_answer(error_code: int) -> None:
    """Raises ApiError unless the request succeeded."""
    if error_code:
        error = ErrorCode.from_code(error_code)
        raise ApiError(error, f"the leader returned {error.name}")
