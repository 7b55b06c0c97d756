"""Builders of common requests."""

from runnel.batch.build import build_batch
from runnel.batch.records import Record, iterate_records
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from runnel.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from runnel.model.ids import NO_ID

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options) -> bytes:
    """One record batch, a value per record."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values)]
    return bytes(build_batch(records, **options))


def produce_to(
    topic: str | bytes,
    *partitions: tuple[int, bytes | None],
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Batches for partitions of one topic, given by name or id."""
    data = [PartitionProduceData(index, records) for index, records in partitions]
    if isinstance(topic, bytes):
        named = TopicProduceData("", topic, data)
    else:
        named = TopicProduceData(topic, NO_ID, data)
    return ProduceRequest(transactional_id, acks, 30_000, [named])


def fetch_from(
    topic: str | bytes,
    *offsets: tuple[int, int],
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max_bytes: int = 1024 * 1024,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    current_epoch: int = -1,
    last_fetched_epoch: int = -1,
    forget: list[int] | None = None,
) -> FetchRequest:
    """(partition, offset) pairs of one topic, given by name or id."""
    partitions = [
        FetchPartition(
            index,
            current_leader_epoch=current_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for index, offset in offsets
    ]
    name, topic_id = ("", topic) if isinstance(topic, bytes) else (topic, NO_ID)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(name, topic_id, partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(name, topic_id, forget)] if forget else [],
    )


def only(response):
    """The single partition of a produce or fetch response."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return partition


def values(records: memoryview | None) -> list[bytes]:
    """The values of all records of a fetch."""
    found = []
    position = 0
    data = memoryview(bytes(records or b""))
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        found += [bytes(record.value or b"") for record in iterate_records(data[position : position + size])]
        position += size
    return found
