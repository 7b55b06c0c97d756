"""Cases of records: produce, fetch, offsets, epochs, producers."""

import time
from collections.abc import Callable
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.records import Record
from runnel.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from runnel.messages.describe_producers import DescribeProducersRequest, TopicRequest
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from runnel.model.ids import NO_ID
from tools.differential.comparison import Broker, BrokerPair, RequestFor
from tools.differential.topics import create, new_topic

NOW_MS = int(time.time() * 1000)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
NO_SUCH_ID = b"\x07" * 16
REFUSED = "log_start_offset"
"""Kafka sets this beside an error only sometimes, and clients do not read it then."""


def batch(count: int = 1, key: bytes | None = b"k", first_ms: int = NOW_MS, **options: Any) -> bytes:
    records = [Record(index, first_ms + index, key, b"v") for index in range(count)]
    return bytes(build_batch(records, **options))


def produce(
    topic: str, version: int, *parts: tuple[int, bytes], acks: int = -1, has_id: bool = True
) -> RequestFor:
    """A produce request with the topic's name or id, depending on the version."""

    def make(broker: Broker) -> ProduceRequest:
        data = [PartitionProduceData(index, records) for index, records in parts]
        topic_id = broker.topic_ids.get(topic, NO_SUCH_ID) if has_id else NO_SUCH_ID
        named = (
            TopicProduceData("", topic_id, data) if version >= 13 else TopicProduceData(topic, NO_ID, data)
        )
        return ProduceRequest(None, acks, 5_000, [named])

    return make


def fetch(
    topic: str,
    version: int,
    *parts: tuple[int, int],
    forget: list[int] | None = None,
    session_epoch: int = -1,
    epoch: int = -1,
    part_max_bytes: int = 1 << 20,
    **options: int,
) -> RequestFor:
    """A fetch of (partition, offset) pairs, in the broker's session if it has an epoch."""

    def make(broker: Broker) -> FetchRequest:
        name, topic_id = (topic, NO_ID) if version < 13 else ("", broker.topic_ids.get(topic, NO_SUCH_ID))
        asked = [
            FetchPartition(
                index, fetch_offset=offset, partition_max_bytes=part_max_bytes, current_leader_epoch=epoch
            )
            for index, offset in parts
        ]
        request = FetchRequest(min_bytes=1, max_bytes=1 << 20, session_epoch=session_epoch)
        request.session_id = broker.session_id if session_epoch > 0 else 0
        request.topics = [FetchTopic(name, topic_id, asked)] if asked else []
        request.forgotten_topics_data = [ForgottenTopic(name, topic_id, forget)] if forget else []
        for option, value in options.items():
            setattr(request, option, value)
        return request

    return make


def check_produce(pair: BrokerPair) -> None:
    """Every version, and every error."""
    plain = create(pair, new_topic("produce-plain"))
    compacted = create(pair, new_topic("produce-compacted", cleanup_policy="compact"))
    small = create(pair, new_topic("produce-small", max_message_bytes="1000"))
    stamped = create(pair, new_topic("produce-stamped", message_timestamp_type="LogAppendTime"))
    packed = create(pair, new_topic("produce-packed", compression_type="zstd"))
    damaged = batch(3)[:-2] + bytes([batch(3)[-2] ^ 1]) + batch(3)[-1:]
    magic = {number: batch(3)[:16] + bytes([number]) + batch(3)[17:] for number in (1, 3)}
    cases: list[tuple[str, str, int, list[tuple[int, bytes]]]] = [
        ("acks all", plain, -1, [(0, batch(3))]),
        ("acks 1, two partitions", plain, 1, [(0, batch(3)), (1, batch(2))]),
        ("acks 2", plain, 2, [(0, batch())]),
        ("a partition that does not exist, and one that does", plain, -1, [(9, batch()), (0, batch())]),
        ("a negative partition", plain, -1, [(-1, batch())]),
        ("no records", plain, -1, [(0, b"")]),
        ("a damaged batch", plain, -1, [(0, damaged)]),
        ("a batch that is cut off", plain, -1, [(0, batch(3)[:-3])]),
        ("records of format 1", plain, -1, [(0, magic[1])]),
        ("records of format 3", plain, -1, [(0, magic[3])]),
        ("two batches", plain, -1, [(0, batch(3) + batch(2))]),
        ("a base offset", plain, -1, [(0, batch(1, base_offset=5))]),
        ("a timestamp far ahead", plain, -1, [(0, batch(1, first_ms=NOW_MS + 10**9))]),
        ("no timestamp", plain, -1, [(0, batch(1, first_ms=-1))]),
        ("no key for a compacted topic", compacted, -1, [(0, batch(2, key=None))]),
        ("a key for a compacted topic", compacted, -1, [(0, batch(2))]),
        ("a batch that is too large", small, -1, [(0, batch(200))]),
        ("LogAppendTime", stamped, -1, [(0, batch(2))]),
    ]
    for kind in Compression:
        records = batch(3, compression=kind)
        cases.append((f"compression {kind.name.lower()}", plain, -1, [(1, records)]))
        cases.append((f"compression {kind.name.lower()} to a topic of zstd", packed, -1, [(1, records)]))
    for version in PRODUCE_VERSIONS:
        for name, topic, acks, parts in cases:
            making = produce(topic, version, *parts, acks=acks)
            pair.check(f"produce: {name}", making, version, ignore=REFUSED)
        making = produce("produce-nowhere", version, (0, batch()), has_id=False)
        pair.check("produce: a topic that does not exist", making, version)
        if version < 13:
            pair.check("produce: an invalid name", produce("a/b", version, (0, batch())), version)
    trailing = produce(plain, 9, (0, batch(3) + b"more"))
    pair.check("produce: bytes after the batch", trailing, 9, ignore=REFUSED)


def check_fetch(pair: BrokerPair) -> None:
    """Every version, limits, sessions."""
    topic = create(pair, new_topic("fetch"))
    for size in (1, 3, 7, 2):
        making = produce(topic, 9, (0, batch(size)), (1, batch(size, compression=Compression.LZ4)))
        pair.begin(making, 9, "one").result()
    for version in FETCH_VERSIONS:
        cases: list[tuple[str, RequestFor]] = [
            ("from the beginning", fetch(topic, version, (0, 0), (1, 0))),
            ("from the middle of a batch", fetch(topic, version, (0, 6))),
            ("at the end", fetch(topic, version, (0, 13), max_wait_ms=50)),
            ("beyond the end", fetch(topic, version, (0, 14))),
            ("before the beginning", fetch(topic, version, (0, -1))),
            ("a partition that does not exist", fetch(topic, version, (9, 0))),
            ("a topic that does not exist", fetch("nowhere", version, (0, 0))),
            ("one byte per partition", fetch(topic, version, (0, 0), (1, 0), part_max_bytes=1)),
            ("one byte in total", fetch(topic, version, (0, 0), (1, 0), max_bytes=1)),
            ("200 bytes in total", fetch(topic, version, (0, 0), (1, 0), max_bytes=200)),
            ("read committed", fetch(topic, version, (0, 0), isolation_level=1)),
            ("a leader epoch to come", fetch(topic, version, (0, 0), epoch=5)),
            ("the leader epoch of now", fetch(topic, version, (0, 0), epoch=0)),
        ]
        for name, making in cases:
            pair.check(f"fetch: {name}", making, version)
        if version >= 7:
            _check_in_session(pair, topic, version)


def _check_in_session(pair: BrokerPair, topic: str, version: int) -> None:
    def check(
        name: str, session_epoch: int, *parts: tuple[int, int], forget: list[int] | None = None
    ) -> None:
        making = fetch(topic, version, *parts, session_epoch=session_epoch, forget=forget)
        pair.check(f"fetch session: {name}", making, version)

    check("unknown", 3, (0, 0))
    begin = fetch(topic, version, (0, 0), (1, 10**6), session_epoch=0)
    responses = pair.check("fetch session: begin", begin, version)
    for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
        broker.session_id = response.session_id
    check("say nothing new", 1)
    check("caught up", 2, (0, 13))
    check("forget a partition", 3, forget=[1])
    check("wrong epoch", 9)
    check("add a partition that does not exist", 4, (7, 0))
    check("an error is repeated", 5)
    check("end", -1)
    check("after the end", 6)


def check_offsets(pair: BrokerPair) -> None:
    """ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""
    topic = create(pair, new_topic("offsets"))
    compacted = create(pair, new_topic("offsets-compacted", cleanup_policy="compact"))
    pair.begin(produce(topic, 9, (0, batch(5))), 9, "one").result()
    pair.begin(produce(topic, 9, (0, batch(5, first_ms=NOW_MS - 1000))), 9, "one").result()

    def moment(
        timestamp: int, index: int = 0, epoch: int = -1, name: str = topic, isolation: int = 0
    ) -> RequestFor:
        asked = ListOffsetsPartition(index, epoch, timestamp)
        return lambda _: ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(name, [asked])])

    versions = range(1, 12)
    names = {-1: "latest", -2: "earliest", -3: "max timestamp", -4: "earliest local", -5: "latest tiered"}
    names |= {-6: "earliest pending", -7: "nothing known", 0: "long ago", NOW_MS: "now", NOW_MS + 4: "newest"}
    names |= {NOW_MS - 999: "before now", NOW_MS + 5: "in the future"}
    for timestamp, name in names.items():
        pair.check(f"list offsets: {name}", moment(timestamp), versions)
        pair.check(f"list offsets: {name} of an empty partition", moment(timestamp, index=1), versions)
    pair.check("list offsets: committed", moment(-1, isolation=1), versions)
    pair.check("list offsets: a leader epoch to come", moment(-1, epoch=5), versions)
    pair.check("list offsets: a partition that does not exist", moment(-1, index=9), versions)
    pair.check("list offsets: a topic that does not exist", moment(-1, name="nowhere"), versions)
    for epoch in (-1, 0, 1, 7):
        for current in (-1, 0, 5):
            asked = OffsetForLeaderPartition(0, current, epoch)
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [asked])])
            pair.check(f"leader epoch: {epoch}, now {current}", request, range(2, 5))
    for offset in (2, 1, 10**6, -5, -1):
        pair.check(f"delete records: before {offset}", _delete(topic, offset), range(3))
    pair.check("delete records: a compacted topic", _delete(compacted, 1), range(3))
    pair.check("delete records: a topic that does not exist", _delete("nowhere", 1), range(3))
    pair.check("fetch: deleted records", fetch(topic, 12, (0, 0)), 12)


def _delete(topic: str, offset: int) -> DeleteRecordsRequest:
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])], 3_000)


def check_producers(pair: BrokerPair) -> None:
    """Idempotent producers: sequences, repeats, epochs."""
    topic = create(pair, new_topic("producers"))
    for version in range(6):
        responses = pair.check("producer id: a new one", InitProducerIdRequest(None, 1000), version)
        pair.check("producer id: an empty transactional id", InitProducerIdRequest("", 1000), version)
        for broker, response in zip((pair.ours, pair.theirs), responses, strict=True):
            broker.producer_id = response.producer_id
    half = InitProducerIdRequest(None, 1000, producer_id=5)
    pair.check("producer id: half an identity", half, range(3, 6))

    def sent(first: int, count: int = 1, epoch: int = 0) -> Callable[[Broker], ProduceRequest]:
        def make(broker: Broker) -> ProduceRequest:
            records = batch(count, producer_id=broker.producer_id, producer_epoch=epoch, base_sequence=first)
            data = [PartitionProduceData(0, records)]
            return ProduceRequest(None, -1, 5_000, [TopicProduceData(topic, NO_ID, data)])

        return make

    scenario = [(0, 2, 0), (2, 1, 0), (0, 2, 0), (10, 1, 0), (3, 1, 0), (2, 2, 0)]
    scenario += [(number, 1, 0) for number in range(4, 9)]
    scenario += [(2, 1, 0), (5, 1, 1), (0, 1, 1), (9, 1, 0), (1, 1, 1), (0, 1, 1)]
    for step, (first, count, epoch) in enumerate(scenario):
        name = f"producer: step {step}, {count} from sequence {first} at epoch {epoch}"
        pair.check(name, sent(first, count, epoch), 9, ignore=REFUSED)
    described = DescribeProducersRequest([TopicRequest(topic, [0, 1, 9])])
    pair.check("producers: described", described, 0)
