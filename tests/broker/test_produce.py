"""Produce over the wire: every version, acks and error."""

import asyncio

import pytest

from runnel.batch.build import build_batch
from runnel.batch.header import read_header
from runnel.batch.records import Record
from runnel.disk.os_files import OsFile
from runnel.messages.produce import ProduceRequest
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.requests import NOW_MS, batch, fetch_from, only, produce_to, values


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_append_returns_the_offset_in_every_version(tell, version, acks):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        for expected in (0, 2, 4):
            answer = only(await client.ask(produce_to("events", (0, batch(b"a", b"b")), acks=acks), version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)

    tell(scenario)


def test_topic_ids(tell):
    async def scenario(world) -> None:
        await world.create("events", 2)
        client = await world.connect()
        topic_id = world.topic_id("events")
        response = await client.ask(produce_to(topic_id, (1, batch(b"a")), (0, batch(b"b"))), 13)
        assert response.responses[0].topic_id == topic_id
        assert [(p.index, p.error_code) for p in response.responses[0].partition_responses] == [
            (1, 0),
            (0, 0),
        ]
        unknown = only(await client.ask(produce_to(bytes(15) + b"\x09", (0, batch(b"a"))), 13))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID.code

    tell(scenario)


def test_error_in_one_partition_does_not_affect_others(tell):
    async def scenario(world) -> None:
        await world.create("events", 2)
        client = await world.connect()
        damaged = bytearray(batch(b"a"))
        damaged[-1] ^= 1
        request = produce_to("events", (0, bytes(damaged)), (1, batch(b"b")), (7, batch(b"c")))
        response = await client.ask(request, 9)
        assert [(p.error_code, p.base_offset) for p in response.responses[0].partition_responses] == [
            (ErrorCode.CORRUPT_MESSAGE.code, -1),
            (0, 0),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, -1),
        ]
        assert all(p.error_message for p in response.responses[0].partition_responses if p.error_code)

    tell(scenario)


@pytest.mark.parametrize(
    ("version", "acks", "records", "error"),
    [
        (9, 2, batch(b"a"), ErrorCode.INVALID_REQUIRED_ACKS),
        (9, -2, batch(b"a"), ErrorCode.INVALID_REQUIRED_ACKS),
        (9, -1, None, ErrorCode.INVALID_RECORD),
        (9, -1, b"", ErrorCode.INVALID_RECORD),
        (9, -1, batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (9, -1, bytes(10), ErrorCode.INVALID_RECORD),
        (9, -1, batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (9, -1, batch(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (6, -1, batch(b"a", compression=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (
            9,
            -1,
            batch(b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_errors(tell, version, acks, records, error):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        answer = only(await client.ask(produce_to("events", (0, records), acks=acks), version))
        assert (ErrorCode.from_code(answer.error_code), answer.base_offset) == (error, -1)
        # Nothing was appended, and the next batch is accepted.
        assert only(await client.ask(produce_to("events", (0, batch(b"fine"))), version)).base_offset == 0

    tell(scenario)


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_record_errors_are_returned(tell, version):
    async def scenario(world) -> None:
        await world.create("latest", cleanup_policy="compact")
        client = await world.connect()
        keys = [b"k", None, b"k", None]
        records = build_batch([Record(i, NOW_MS, key, b"v") for i, key in enumerate(keys)])
        # The second request takes the template path.
        for _ in range(2):
            answer = only(await client.ask(produce_to("latest", (0, bytes(records))), version))
            assert answer.error_code == ErrorCode.INVALID_RECORD.code
            named = [
                (error.batch_index, bool(error.batch_index_error_message)) for error in answer.record_errors
            ]
            assert named == ([(1, True), (3, True)] if version >= 8 else [])

    tell(scenario)


def test_acks_0_has_no_response(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        for number in range(3):
            client.send(produce_to("events", (0, batch(b"%d" % number)), acks=0), 9)
            client.sent.pop()
        answer = only(await client.ask(produce_to("events", (0, batch(b"last")), acks=1), 9))
        assert answer.base_offset == 3

    tell(scenario)


def test_acks_0_error_closes_the_connection(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        client.send(produce_to("nowhere", (0, batch(b"a")), acks=0), 9)
        assert await client.is_closed()

    tell(scenario)


def test_pipelined_requests_share_turns_and_keep_their_order(tell):
    async def scenario(world) -> None:
        await world.create("events", 3)
        client = await world.connect()
        for number in range(300):
            client.send(
                produce_to("events", (number % 3, batch(b"%d" % number)), acks=-1 if number % 2 else 1), 9
            )
        offsets = [only(await client.receive()).base_offset for _ in range(300)]
        assert offsets == [number // 3 for number in range(300)]
        fetched = only(await client.ask(fetch_from("events", (1, 0)), 12))
        assert values(fetched.records) == [b"%d" % number for number in range(300) if number % 3 == 1]

    tell(scenario)


def test_produce_to_internal_topics_is_rejected(tell):
    async def scenario(world) -> None:
        await world.create("__consumer_offsets")
        client = await world.connect()
        request = produce_to("__consumer_offsets", (0, batch(b"a")))
        assert only(await client.ask(request, 9)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION.code
        assert only(await client.ask(request, 9, client_id="__admin_client")).error_code == 0

    tell(scenario)


def test_stored_batch_has_offset_and_epoch(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        await client.ask(produce_to("events", (0, batch(b"a", b"b"))), 9)
        await client.ask(produce_to("events", (0, batch(b"c"))), 9)
        header = read_header(only(await client.ask(fetch_from("events", (0, 2)), 12)).records)
        epoch = world.broker.partitions[TopicPartition("events", 0)].replica.epoch
        assert (header.base_offset, header.leader_epoch) == (2, epoch)

    tell(scenario)


def test_duplicate_batch_returns_its_original_offset(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        first = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
        second = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=2)
        # In one turn: the duplicate must not be acknowledged before its original is written.
        for records in (first, first, second, first, second):
            client.send(produce_to("events", (0, records)), 9)
        answers = [only(await client.receive()) for _ in range(5)]
        assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 0), (0, 2), (0, 0), (0, 2)]
        gap = batch(b"z", producer_id=7, producer_epoch=0, base_sequence=9)
        refused = only(await client.ask(produce_to("events", (0, gap)), 9))
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code

    tell(scenario)


def test_flush_policy_commit_delays_acknowledgements(tell):
    async def scenario(world) -> None:
        await world.create("events", 2, flush_policy="commit")
        client = await world.connect()
        partition = world.broker.partitions[TopicPartition("events", 0)]
        for number in range(40):
            client.send(
                produce_to("events", (number % 2, batch(b"%d" % number)), acks=1 + -2 * (number % 2)), 9
            )
        for number in range(40):
            assert only(await client.receive()).base_offset == number // 2
            assert partition.log.durable_offset >= partition.high_watermark
        assert partition.high_watermark == 20

    tell(scenario)


@pytest.mark.parametrize("settings", [{"flush_policy": "commit"}, {"flush_messages": "1"}])
def test_one_sync_per_batch(tell, monkeypatch, settings):
    synced: list[int] = []

    def datasync(file: OsFile) -> None:
        synced.append(file.fileno())
        really(file)

    really = OsFile.datasync
    monkeypatch.setattr(OsFile, "datasync", datasync)

    async def scenario(world) -> None:
        await world.create("events", **settings)
        client = await world.connect()
        # The first sync also makes the partition itself durable.
        assert only(await client.ask(produce_to("events", (0, batch(b"a")), acks=-1), 9)).error_code == 0
        synced.clear()
        for _ in range(3):
            assert only(await client.ask(produce_to("events", (0, batch(b"b")), acks=-1), 9)).error_code == 0
        log = world.broker.partitions[TopicPartition("events", 0)].log
        assert synced.count(log.segments.active.file.fileno()) == 3
        assert log.durable_offset == 4

    tell(scenario)


def test_records_are_not_readable_before_they_are_durable(tell, monkeypatch):
    async def scenario(world) -> None:
        await world.create("events", flush_policy="commit")
        client, reader = await world.connect(), await world.connect()
        held = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: held)
        client.send(produce_to("events", (0, batch(b"a"))), 9)
        partition = world.broker.partitions[TopicPartition("events", 0)]
        while partition.log.written_offset == 0:
            await asyncio.sleep(0.01)
        early = only(await reader.ask(fetch_from("events", (0, 0)), 12))
        assert (early.high_watermark, bytes(early.records)) == (0, b"")
        held.set_result(1)
        assert only(await client.receive()).base_offset == 0
        assert values(only(await reader.ask(fetch_from("events", (0, 0)), 12)).records) == [b"a"]

    tell(scenario)


def test_failed_sync_is_a_storage_error(tell, monkeypatch):
    async def scenario(world) -> None:
        await world.create("events", flush_policy="commit")
        client = await world.connect()
        held = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: held)
        client.send(produce_to("events", (0, batch(b"a"))), 9)
        held.set_exception(OSError(5, "Input/output error"))
        assert only(await client.receive()).error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
        partition = world.broker.partitions[TopicPartition("events", 0)]
        assert partition.high_watermark == 0

    tell(scenario)


def test_deleting_a_topic_completes_pending_acknowledgements(tell, monkeypatch):
    async def scenario(world) -> None:
        await world.create("events", flush_policy="commit")
        client = await world.connect()
        held = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: held)
        client.send(produce_to("events", (0, batch(b"a"))), 9)
        name = TopicPartition("events", 0)
        while world.broker.partitions[name].log.written_offset == 0:
            await asyncio.sleep(0.01)
        world.broker.close_partition(name)
        assert only(await client.receive()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code

    tell(scenario)


def test_empty_request(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        assert (await client.ask(ProduceRequest(None, -1, 1000, []), 9)).responses == []

    tell(scenario)
