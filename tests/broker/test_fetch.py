"""Fetch over the wire: offsets, size limits, long polls, epochs."""

import asyncio

import pytest

from runnel.disk.decryption import Decryption
from runnel.disk.os_files import OsFile
from runnel.messages.fetch import FetchRequest
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.disk import FileSlice
from tests.broker.requests import batch, fetch_from, only, produce_to, values


async def filled(world, name="events", partitions=1, batches=5, size=10, **configs):
    """A topic with this many batches of two records per partition, and a client."""
    await world.create(name, partitions, **configs)
    client = await world.connect()
    for index in range(partitions):
        for number in range(batches):
            records = batch(b"%d:%d" % (index, 2 * number), b"x" * size)
            assert only(await client.ask(produce_to(name, (index, records)), 9)).error_code == 0
    return client


@pytest.mark.parametrize("version", range(4, 19))
def test_each_version_reads_whole_batches(tell, version):
    async def scenario(world) -> None:
        client = await filled(world)
        topic = world.topic_id("events") if version >= 13 else "events"
        response = await client.ask(fetch_from(topic, (0, 0)), version)
        found = only(response)
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 10, 10)
        assert values(found.records)[::2] == [b"0:0", b"0:2", b"0:4", b"0:6", b"0:8"]
        # An offset inside a batch returns the whole batch.
        assert values(only(await client.ask(fetch_from(topic, (0, 7)), version)).records)[::2] == [
            b"0:6",
            b"0:8",
        ]
        assert bytes(only(await client.ask(fetch_from(topic, (0, 10)), version)).records) == b""

    tell(scenario)


def test_offsets_outside_of_the_log(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        for offset in (-1, 11, 2**62):
            found = only(await client.ask(fetch_from("events", (0, offset)), 12))
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code
            assert (found.high_watermark, found.log_start_offset, bytes(found.records)) == (-1, -1, b"")

    tell(scenario)


def test_unknown_topics_partitions_and_ids(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert only(await client.ask(fetch_from("events", (1, 0)), 12)).error_code == unknown
        assert only(await client.ask(fetch_from("nothing", (0, 0)), 12)).error_code == unknown
        response = await client.ask(fetch_from(bytes(15) + b"\x01", (0, 0)), 13)
        assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID.code
        assert only(await client.ask(fetch_from(world.topic_id("events"), (1, 0)), 13)).error_code == unknown

    tell(scenario)


def test_no_wait_at_the_end_of_a_segment_before_the_last(tell):
    async def scenario(world) -> None:
        client = await filled(world, size=5000)
        world.broker.partition_at["events", 0].log.roll_now()
        records = batch(b"next", b"x")
        assert only(await client.ask(produce_to("events", (0, records)), 9)).error_code == 0
        # Its deadline exceeds the duration of the test.
        request = fetch_from("events", (0, 8), wait_ms=600_000, min_bytes=1_000_000)
        assert values(only(await client.ask(request, 12)).records)[0] == b"0:8"

    tell(scenario)


def test_first_batch_is_returned_even_if_it_exceeds_the_limit(tell):
    async def scenario(world) -> None:
        client = await filled(world, partitions=2, size=5000)
        response = await client.ask(fetch_from("events", (0, 0), (1, 0), max_bytes=100), 12)
        first, second = response.responses[0].partitions
        assert values(first.records)[0] == b"0:0" and len(values(first.records)) == 2
        assert bytes(second.records) == b"" and second.high_watermark == 10
        # The same holds for the limit of the partition.
        response = await client.ask(fetch_from("events", (0, 0), partition_max_bytes=0), 12)
        assert len(values(only(response).records)) == 2

    tell(scenario)


def test_max_bytes_is_shared_by_partitions(tell):
    async def scenario(world) -> None:
        client = await filled(world, partitions=3, batches=4, size=1000)
        response = await client.ask(
            fetch_from("events", (2, 0), (0, 0), (1, 0), max_bytes=5000, partition_max_bytes=3500), 12
        )
        found = {p.partition_index: len(values(p.records)) // 2 for p in response.responses[0].partitions}
        assert found == {2: 3, 0: 1, 1: 0}

    tell(scenario)


def test_large_reads_are_sent_as_file_slices(tell):
    async def scenario(world) -> None:
        client = await filled(world, partitions=2, batches=6, size=200_000)
        response = await client.ask(fetch_from("events", (0, 0), (1, 0), partition_max_bytes=10_000_000), 12)
        for index, partition in zip((0, 1), response.responses[0].partitions, strict=True):
            assert values(partition.records)[::2] == [b"%d:%d" % (index, 2 * number) for number in range(6)]
            log = world.broker.partition("events", index).log
            found = log.read(0, 10_000_000, log.end_offset, at_least_one=True)
            assert [type(part) for part in found.parts] == [FileSlice]

    tell(scenario)


@pytest.mark.parametrize(
    ("is_cold", "partition_max_bytes", "count"),
    [
        (False, 1024 * 1024, 3),
        (True, 1024 * 1024, 3),
        (False, 250_000, 6),
        # It is not known before that whole batches take less.
        (True, 250_000, 5),
        (False, 0, 1),
        (True, 0, 1),
    ],
)
def test_no_more_is_decrypted_than_the_response_may_have(
    tell, monkeypatch, is_cold, partition_max_bytes, count
):
    sizes = []
    finish = Decryption.finish

    def counted(self):
        finish(self)
        sizes.append(self._found.size_bytes)

    monkeypatch.setattr(Decryption, "finish", counted)

    async def scenario(world) -> None:
        client = await filled(world, partitions=8, batches=4, size=100_000, encryption_enable="true")
        if is_cold:
            monkeypatch.setattr(OsFile, "is_resident", lambda *_: False)
            for index in range(8):
                log = world.broker.partition("events", index).log
                log.reader.time_passed()
                log.reader.time_passed()
        asked = [(index, 0) for index in range(8)]
        request = fetch_from("events", *asked, max_bytes=1_200_000, partition_max_bytes=partition_max_bytes)
        response = await client.ask(request, 12)
        found = [p.partition_index for p in response.responses[0].partitions if p.records]
        assert found == list(range(count))
        assert sum(size > 0 for size in sizes) == count
        assert sum(sizes) <= 1_200_000
        assert sum(len(p.records or b"") for p in response.responses[0].partitions) == sum(sizes)

    tell(scenario)


def test_long_poll_completes_on_new_records(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        reader = await world.connect()
        reader.send(fetch_from("events", (0, 10), wait_ms=20_000), 12)
        while not world.broker.waiting.polls:
            await asyncio.sleep(0.01)
        await client.ask(produce_to("events", (0, batch(b"new"))), 9)
        assert values(only(await reader.receive()).records) == [b"new"]
        assert not world.broker.waiting.polls
        assert not world.broker.partitions[TopicPartition("events", 0)].watchers

    tell(scenario)


def test_long_poll_times_out(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        response = await client.ask(fetch_from("events", (0, 10), wait_ms=50), 12)
        found = only(response)
        assert (found.error_code, found.high_watermark, bytes(found.records)) == (0, 10, b"")
        assert not world.broker.waiting.polls

    tell(scenario)


def test_long_poll_waits_for_min_bytes(tell):
    async def scenario(world) -> None:
        client = await filled(world, partitions=2)
        reader = await world.connect()
        reader.send(fetch_from("events", (0, 10), (1, 10), wait_ms=20_000, min_bytes=5000), 12)
        for number in range(10):
            await client.ask(produce_to("events", (number % 2, batch(b"x" * 400))), 9)
        assert world.broker.waiting.polls, "ten batches of less than 500 bytes are too little"
        await client.ask(produce_to("events", (0, batch(b"x" * 400))), 9)
        response = await reader.receive()
        assert sum(len(p.records) for p in response.responses[0].partitions) >= 5000

    tell(scenario)


def test_available_data_is_returned_at_once(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        assert values(only(await client.ask(fetch_from("events", (0, 8), wait_ms=60_000), 12)).records)
        # An error completes the request, too.
        failed = only(await client.ask(fetch_from("events", (0, 99), wait_ms=60_000), 12))
        assert failed.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code
        assert (await client.ask(FetchRequest(max_wait_ms=60_000, min_bytes=1), 12)).responses == []

    tell(scenario)


def test_long_poll_completes_when_its_topic_is_deleted(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        client.send(fetch_from("events", (0, 10), wait_ms=20_000), 12)
        while not world.broker.waiting.polls:
            await asyncio.sleep(0.01)
        world.broker.close_partition(TopicPartition("events", 0))
        assert only(await client.receive()).error_code != 0

    tell(scenario)


def test_long_poll_is_dropped_with_its_connection(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        client.send(fetch_from("events", (0, 10), wait_ms=60_000), 12)
        while not world.broker.waiting.polls:
            await asyncio.sleep(0.01)
        await client.close()
        while world.broker.waiting.polls:
            await asyncio.sleep(0.01)
        assert not world.broker.partitions[TopicPartition("events", 0)].watchers

    tell(scenario)


def test_requests_after_a_long_poll_wait(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        client.send(fetch_from("events", (0, 10), wait_ms=100), 12)
        client.send(produce_to("events", (0, batch(b"after"))), 9)
        assert bytes(only(await client.receive()).records) == b""
        assert only(await client.receive()).base_offset == 10

    tell(scenario)


def test_current_leader_epoch_is_validated(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        leader = world.broker.partitions[TopicPartition("events", 0)].replica
        leader.epoch = 5
        for epoch, error in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            response = await client.ask(fetch_from("events", (0, 0), current_epoch=epoch), 12)
            assert only(response).error_code == error.code
        assert only(await client.ask(fetch_from("events", (0, 0), current_epoch=5), 12)).error_code == 0
        response = await client.ask(fetch_from(world.topic_id("events"), (0, 0), current_epoch=4), 16)
        assert (only(response).current_leader.leader_id, only(response).current_leader.leader_epoch) == (1, 5)
        assert [(n.node_id, n.port) for n in response.node_endpoints] == [(1, world.broker.port)]

    tell(scenario)


def test_diverging_epoch_is_returned(tell):
    async def scenario(world) -> None:
        client = await filled(world, batches=3)
        partition = world.broker.partitions[TopicPartition("events", 0)]
        first_epoch = partition.replica.epoch
        partition.replica.epoch = first_epoch + 2
        partition.log.begin_epoch(first_epoch + 2)
        await client.ask(produce_to("events", (0, batch(b"later"))), 9)
        request = fetch_from("events", (0, 7), last_fetched_epoch=first_epoch, wait_ms=60_000)
        found = only(await client.ask(request, 12))
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (first_epoch, 6)
        agreeing = fetch_from("events", (0, 6), last_fetched_epoch=first_epoch)
        assert values(only(await client.ask(agreeing, 12)).records) == [b"later"]

    tell(scenario)


def test_read_committed_lists_no_aborted_transactions(tell):
    async def scenario(world) -> None:
        client = await filled(world)
        found = only(await client.ask(fetch_from("events", (0, 0), isolation=1), 12))
        assert found.aborted_transactions == [] and len(values(found.records)) == 10
        assert only(await client.ask(fetch_from("events", (0, 0)), 12)).aborted_transactions is None

    tell(scenario)
