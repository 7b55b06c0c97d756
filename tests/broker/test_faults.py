"""Behaviour after a crash, a failed sync, a full disk or a bug: no false acknowledgement, no stuck client."""

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import cast

import pytest

from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.turn import Turn
from runnel.controller.image import BadMetadata
from runnel.disk import os_files
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.model.errors import ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.ports.clock import Timers
from runnel.ports.disk import Origin
from runnel.replica.leader import LeaderReplica
from tests.broker.requests import NOW_MS, batch, only, produce_to
from tests.broker.world import BrokerWorld

EVENTS = TopicPartition("events", 0)
LATEST = -1


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_log_end_is_known_to_the_first_client_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path / "first") as world:
            await world.create("events", flush_policy="commit")
            client = await world.connect()
            for _ in range(3):
                assert only(await client.ask(produce_to("events", (0, batch(b"a"))), 9)).error_code == 0
            # The files after a kill.
            shutil.copytree(tmp_path / "first", tmp_path / "second")
        async with BrokerWorld(tmp_path / "second") as world:
            assert world.broker.partitions[EVENTS].high_watermark == 3
            topic = ListOffsetsTopic("events", [ListOffsetsPartition(0, -1, LATEST)])
            asked = ListOffsetsRequest(-1, 0, [topic])
            response = await (await world.connect()).ask(asked, 4)
            assert response.topics[0].partitions[0].offset == 3

    asyncio.run(scenario())


def test_failed_sync_at_start_keeps_durable_records_readable(tmp_path: Path, monkeypatch) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path) as world:
            await world.create("events", flush_policy="commit")
            client = await world.connect()
            assert only(await client.ask(produce_to("events", (0, batch(b"a"))), 9)).error_code == 0
            partition = world.broker.partitions[EVENTS]
            partition.log.begin_epoch(5)
            world.broker.partitions.pop(EVENTS)
            monkeypatch.setattr(world.disk, "sync", lambda log: asyncio.get_running_loop().create_future())
            staged = partition.log.stage(memoryview(bytearray(batch(b"b"))), 5, NOW_MS, Origin.CLIENT)
            partition.log.write_staged()
            assert staged.base_offset == 1
            leader = LeaderReplica.sole(1, 5)
            again = world.broker.open_partition(EVENTS, partition.topic_id, leader, partition.log.config)
            assert again.high_watermark == 1

    asyncio.run(scenario())


def test_retry_after_a_failed_sync_is_acknowledged(tell, monkeypatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", flush_policy="commit")
        client = await world.connect()
        request = produce_to("events", (0, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)))

        def refuse(_: int) -> None:
            raise OSError(errno.EIO, "input/output error")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os_files, "_datasync", refuse)
            answer = only(await client.ask(request, 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
        log = world.broker.partitions[EVENTS].log

        def has_recovered() -> bool:
            world.disk.upkeep(world.broker.clock.now_ms())
            return log.failure is None

        await until(has_recovered)
        answer = only(await client.ask(request, 9))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert world.broker.partitions[EVENTS].high_watermark == 1

    tell(scenario)


def test_lost_offsets_do_not_acknowledge_later_records(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        client = await world.connect()
        for _ in range(5):
            assert only(await client.ask(produce_to("events", (0, batch(b"a"))), 9)).error_code == 0
        # As recovery from a failed sync does when pages are corrupt.
        partition = world.broker.partitions[EVENTS]
        partition.log.truncate_to(2)
        assert partition.high_watermark == partition.last_stable_offset == 2
        await until(lambda: partition.is_leader)

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwritev", refuse)
            answer = only(await client.ask(produce_to("events", (0, batch(b"b"))), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
        answer = only(await client.ask(produce_to("events", (0, batch(b"b"))), 9))
        assert (answer.error_code, answer.base_offset) == (0, 2)
        assert world.broker.partitions[EVENTS].high_watermark == 3

    tell(scenario)


def test_failed_file_deletion_does_not_block_metadata(tell, monkeypatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        client = await world.connect()
        remove_log, attempts = world.disk.remove_log, []

        def refuse_once(name: TopicPartition) -> None:
            attempts.append(name)
            if len(attempts) == 1:
                raise StorageFailed("no room")
            remove_log(name)

        monkeypatch.setattr(world.disk, "remove_log", refuse_once)
        response = await client.ask(DeleteTopicsRequest(topic_names=["events"]), 5)
        assert response.responses[0].error_code == 0
        await world.create("others")
        await until(lambda: EVENTS not in world.disk.known_logs())

    tell(scenario)


def test_failed_deletion_of_orphans_does_not_prevent_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path) as world:
            await world.create("events")
            client = await world.connect()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(world.disk, "remove_log", lambda _: None)
                await client.ask(DeleteTopicsRequest(topic_names=["events"]), 5)
        world = BrokerWorld(tmp_path)

        def refuse(_: TopicPartition) -> None:
            raise StorageFailed("no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.disk, "remove_log", refuse)
            async with world:
                await world.create("others")

    asyncio.run(scenario())


def test_corrupt_metadata_is_not_truncated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path) as world:
            for number in range(5):
                await world.create(f"topic-{number}")
        (tmp_path / "clean-shutdown-manifest").unlink()
        (segment,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
        data = bytearray(segment.read_bytes())
        first_bytes = 12 + int.from_bytes(data[8:12], "big")
        # The magic byte of the second batch, which was durable.
        data[first_bytes + 16] ^= 8
        segment.write_bytes(data)
        world = BrokerWorld(tmp_path)
        with pytest.raises(BadMetadata, match="damaged"):
            async with world:
                pass
        world.disk.close()
        assert world.listener._socket is not None
        world.listener._socket.close()

    asyncio.run(scenario())


def test_exception_in_one_partition_releases_the_memory_lent_to_others() -> None:
    written: list[str] = []

    class Sound:
        def write(self, loan: object) -> None:
            written.append("sound")

    class Broken:
        def write(self, loan: object) -> None:
            raise IndexError("a bug")

    turn = Turn(cast("Timers", None))
    turn.is_open = True
    for partition in (Sound(), Broken(), Sound()):
        turn.touch(cast("ReplicatedLog", partition))
    with pytest.raises(IndexError):
        turn.finish()
    assert written == ["sound", "sound"]
    assert turn.touched == []
