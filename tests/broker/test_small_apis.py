"""OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and InitProducerId."""

import asyncio

import pytest

from runnel.broker.runtime import producer_ids
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.controller.producer_ids import BLOCK_SIZE
from runnel.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from runnel.messages.describe_producers import DescribeProducersRequest, TopicRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.world import BrokerWorld


@pytest.mark.parametrize("version", [2, 3, 4])
def test_end_offset_of_an_epoch(tell, version):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        partition = world.broker.partitions[TopicPartition("events", 0)]
        first = partition.replica.epoch
        await client.ask(produce_to("events", (0, batch(b"a", b"b"))), 9)
        partition.replica.epoch = first + 2
        partition.log.begin_epoch(first + 2)
        await client.ask(produce_to("events", (0, batch(b"c"))), 9)

        async def end_of(epoch: int, current: int = -1, index: int = 0) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(index, current, epoch)
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("events", [asked])])
            answer = (await client.ask(request, version)).topics[0].partitions[0]
            return answer.error_code, answer.leader_epoch, answer.end_offset

        assert await end_of(first) == (0, first, 2)
        assert await end_of(first + 1) == (0, first, 2)
        assert await end_of(first + 2, current=first + 2) == (0, first + 2, 3)
        assert await end_of(first, current=first) == (ErrorCode.FENCED_LEADER_EPOCH.code, -1, -1)
        assert await end_of(first, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, -1, -1)

    tell(scenario)


async def delete(client, offset: int, version: int = 2, topic: str = "events", index: int = 0):
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])
    answer = (await client.ask(DeleteRecordsRequest([asked], 1000), version)).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records(tell, version):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        for number in range(5):
            await client.ask(produce_to("events", (0, batch(b"%d" % number))), 9)
        assert await delete(client, 2, version) == (0, 2)
        found = only(await client.ask(fetch_from("events", (0, 2)), 12))
        assert found.log_start_offset == 2 and values(found.records) == [b"2", b"3", b"4"]
        below = only(await client.ask(fetch_from("events", (0, 1)), 12))
        assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code
        assert await delete(client, 1, version) == (0, 2)
        assert await delete(client, 6, version) == (ErrorCode.OFFSET_OUT_OF_RANGE.code, -1)
        assert await delete(client, -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE.code, -1)
        assert await delete(client, -1, version) == (0, 5)

    tell(scenario)


def test_delete_records_errors(tell):
    async def scenario(world) -> None:
        await world.create("compacted", cleanup_policy="compact")
        await world.create("both", cleanup_policy="compact,delete")
        await world.create("__consumer_offsets")
        client = await world.connect()
        assert await delete(client, 0, topic="compacted") == (ErrorCode.POLICY_VIOLATION.code, -1)
        assert await delete(client, 0, topic="both") == (0, 0)
        internal = await delete(client, 0, topic="__consumer_offsets")
        assert internal == (ErrorCode.INVALID_TOPIC_EXCEPTION.code, -1)
        assert await delete(client, 0, topic="no") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, -1)

    tell(scenario)


def test_describe_producers(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        records = batch(b"a", b"b", producer_id=44, producer_epoch=3, base_sequence=0)
        await client.ask(produce_to("events", (0, records)), 9)
        response = await client.ask(DescribeProducersRequest([TopicRequest("events", [0, 5])]), 0)
        known, unknown = response.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (44, 3, 1)
        assert producer.current_txn_start_offset == -1
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code and unknown.error_message

    tell(scenario)


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_unique(tell, version):
    async def scenario(world) -> None:
        clients = [await world.connect() for _ in range(3)]
        for client in clients:
            for _ in range(5):
                client.send(InitProducerIdRequest(None, 60_000), version)
        answers = [await client.receive() for client in clients for _ in range(5)]
        assert {(a.error_code, a.producer_epoch) for a in answers} == {(0, 0)}
        assert len({a.producer_id for a in answers}) == 15

    tell(scenario)


def test_producer_ids_are_unique_across_restarts(tmp_path):
    async def take() -> int:
        async with BrokerWorld(tmp_path) as world:
            client = await world.connect()
            producer_id: int = (await client.ask(InitProducerIdRequest(None, 60_000), 4)).producer_id
            return producer_id

    lives = [asyncio.run(take()) for _ in range(3)]
    assert lives == [lives[0], lives[0] + BLOCK_SIZE, lives[0] + 2 * BLOCK_SIZE]


def test_the_next_block_of_producer_ids_is_there_before_it_is_needed(tell):
    async def scenario(world) -> None:
        broker = world.broker
        taken = [await broker.producer_ids.take() for _ in range(BLOCK_SIZE * 9 // 10)]
        assert broker.metadata.image.next_producer_id == BLOCK_SIZE
        taken.append(await broker.producer_ids.take())
        async with asyncio.timeout(20):
            while broker.metadata.image.next_producer_id == BLOCK_SIZE:
                await asyncio.sleep(0.001)
        taken += [await broker.producer_ids.take() for _ in range(BLOCK_SIZE)]
        assert taken == list(range(len(taken)))

    tell(scenario)


def test_producers_retry_while_the_controller_gives_no_ids(tell, monkeypatch):
    monkeypatch.setattr(producer_ids, "REQUEST_TIMEOUT_MS", 20)

    async def scenario(world) -> None:
        client = await world.connect()
        await client.ask(FindCoordinatorRequest(key="x", key_type=1), 1)
        with monkeypatch.context() as isolated:
            isolated.setattr(MetadataLog, "is_active", False)
            for request in (InitProducerIdRequest(None, 60_000), InitProducerIdRequest("x", 60_000)):
                reply = await client.ask(request, 4)
                assert ErrorCode.from_code(reply.error_code).retriable, reply
        assert (await client.ask(InitProducerIdRequest(None, 60_000), 4)).error_code == 0

    tell(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        InitProducerIdRequest("", 60_000),
        InitProducerIdRequest(None, 60_000, producer_id=5),
        InitProducerIdRequest(None, 60_000, producer_epoch=5),
    ],
)
def test_incomplete_identity_is_rejected(tell, request_):
    async def scenario(world) -> None:
        client = await world.connect()
        answer = await client.ask(request_, 4)
        assert answer.error_code == ErrorCode.INVALID_REQUEST.code
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    tell(scenario)
