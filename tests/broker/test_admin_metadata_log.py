"""Acknowledged changes of the metadata log survive crashes and disk faults at any point."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import TypeVar

import pytest

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.broker.runtime import metadata_snapshots
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.snapshot_batches import snapshot_batches
from runnel.controller.topic_changes import Randomness, decide_create_topics
from runnel.disk.data_directory import DataDirectory
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import METADATA_TOPIC_ID, SnapshotId
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin, PartitionLog
from runnel.schemas.metadata import (
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from runnel.sim.files import PowerFailure, SimFiles
from runnel.sim.loop import VirtualLoop
from runnel.sim.shells import SimClock, SimEntropy, SimTimers, SimWorkers
from tests.controller.images import same

Result = TypeVar("Result")


def play(
    files: SimFiles,
    scenario: Callable[["Opened"], Awaitable[Result]],
    seed: int = 1,
    settings: dict[str, str] | None = None,
) -> Result:
    """One run of a metadata log, which ends with a crash."""
    loop = VirtualLoop()
    # A power failure in a callback must not reach other handlers.
    loop.set_exception_handler(lambda loop, _: loop.stop())
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_run_to_end(files, loop, scenario, seed, settings or {}))
    except RuntimeError:
        if files.operations < files.power_failure_at or files.power_failure_at < 0:
            raise
        raise PowerFailure from None
    finally:
        # Pending tasks are dropped.
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()


async def _run_to_end(
    files: SimFiles,
    loop: VirtualLoop,
    scenario: Callable[["Opened"], Awaitable[Result]],
    seed: int,
    settings: dict[str, str],
) -> Result:
    opened = Opened(files, loop, Random(seed))
    await opened.open(settings)
    return await scenario(opened)


class Opened:
    """A metadata log on a simulated disk."""

    def __init__(self, files: SimFiles, loop: VirtualLoop, random: Random) -> None:
        clock = SimClock(loop)
        self.entropy, self.timers = SimEntropy(random), SimTimers(loop)
        self.disk = DataDirectory(
            "/data",
            files=files,
            clock=clock,
            entropy=self.entropy,
            write_workers=SimWorkers(loop, random),
            sync_workers=SimWorkers(loop, random),
            upkeep_workers=SimWorkers(loop, random),
            read_workers=SimWorkers(loop, random),
        )
        self.clock = clock
        self.metadata: MetadataLog

    @property
    def log(self) -> PartitionLog:
        return self.metadata.quorum.log

    async def open(self, settings: dict[str, str]) -> None:
        broker = Broker(1, "", "sim", 1, self.clock, self.timers, self.disk, self.entropy, Settings(settings))
        quorum = await QuorumLog.open(broker)
        self.metadata = MetadataLog(quorum, self.disk, self.clock, broker.settings)
        await self.metadata.load()
        quorum.start(self.metadata)
        await self.metadata.caught_up()

    async def finish(self) -> None:
        await self.metadata.quorum.close()
        await self.metadata.close()
        self.disk.close()


def change_number(number: int) -> list[MetadataRecord]:
    """The n-th change: topics are created, altered, and some deleted."""
    topic_id = number.to_bytes(16, "big")
    if number % 5 == 4:
        return [RemoveTopicRecord((number - 3).to_bytes(16, "big"))]
    return [
        TopicRecord(f"topic-{number}", topic_id),
        ConfigRecord(2, f"topic-{number}", "retention.ms", str(number)),
        ConfigRecord(4, "", "message.max.bytes", str(number)),
    ]


def image_after(changes: int) -> MetadataImage:
    image = MetadataImage()
    for number in range(changes):
        image.replay_batch(change_number(number), 0)
    return image


async def submit_all(opened: Opened, first: int, last: int, acknowledged: list[int]) -> None:
    for number in range(first, last):
        await opened.metadata.submit(change_number(number))
        acknowledged.append(number)


def changes_in(image: MetadataImage, most: int) -> int:
    """How many changes an image contains; it must contain a complete prefix."""
    matching = [changes for changes in range(most + 1) if same(image, image_after(changes))]
    assert matching, "the image is not a prefix of the changes"
    return matching[0]


def test_restart_restores_all_changes() -> None:
    files, acknowledged = SimFiles(), list[int]()
    play(files, lambda opened: submit_all(opened, 0, 12, acknowledged))
    assert acknowledged == list(range(12))

    async def look(opened: Opened) -> None:
        assert same(opened.metadata.image, image_after(12))
        assert opened.metadata.image.version == opened.log.end_offset
        assert opened.metadata.removed == {"topic-1", "topic-6"}
        await submit_all(opened, 12, 13, acknowledged)
        assert same(opened.metadata.image, image_after(13))

    play(files, look)


def test_acknowledged_changes_survive_a_power_failure_at_any_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Frequent snapshots, so that power also fails at every step of a snapshot.
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS_MIN", 10)
    whole = SimFiles()
    play(whole, lambda opened: submit_all(opened, 0, 14, []))
    snapshots = 0
    for operation in range(1, whole.operations + 1):
        files, acknowledged = SimFiles(), list[int]()
        files.power_failure_at = operation
        with suppress(PowerFailure):
            play(files, partial(submit_all, first=0, last=14, acknowledged=acknowledged))
        files.lose_power(Random(operation))

        async def look(opened: Opened, known: list[int] = acknowledged) -> int:
            found = changes_in(opened.metadata.image, 14)
            assert found >= len(known), f"{len(known)} changes were acknowledged, {found} survived"
            await submit_all(opened, found, 14, known)
            return opened.log.log_start_offset

        snapshots += play(files, look) > 0
        # Again after a crash of the second run.
        assert play(files, _image_of).topics == image_after(14).topics
    assert snapshots > 10


async def _image_of(opened: Opened) -> MetadataImage:
    return opened.metadata.image


def test_snapshots_keep_the_log_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS_MIN", 50)
    files = SimFiles()

    async def flip(opened: Opened) -> tuple[int, int]:
        await opened.metadata.submit(change_number(0))
        for number in range(300):
            await opened.metadata.submit([ConfigRecord(4, "", "message.max.bytes", str(number))])
        log = opened.log
        return log.log_start_offset, log.end_offset

    start, end = play(files, flip)
    assert end - start < 120, "two snapshots and what came after them are kept"
    image = play(files, _image_of)
    assert image.broker_configs(None) == {"message.max.bytes": "299"}
    assert list(image.topics) == ["topic-0"]


def test_changes_do_not_wait_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS_MIN", 5)

    async def crowd(opened: Opened) -> None:
        async def one(number: int) -> None:
            await asyncio.sleep(number / 1000)
            await opened.metadata.submit([ConfigRecord(32, f"group-{number}", "share.isolation.level", "x")])

        await asyncio.gather(*(one(number) for number in range(100)))
        assert len(opened.metadata.image.configs) == 100

    files = SimFiles()
    play(files, crowd)
    assert len(play(files, _image_of).configs) == 100


def test_full_disk_rejects_changes() -> None:
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        await submit_all(opened, 0, 3, [])
        files.capacity_bytes = 0
        with pytest.raises(ApiError) as refused:
            await opened.metadata.submit(change_number(3))
        assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert same(opened.metadata.image, image_after(3))
        files.capacity_bytes = 2**40
        await submit_all(opened, 3, 6, [])
        assert same(opened.metadata.image, image_after(6))

    play(files, fill)
    assert same(play(files, _image_of), image_after(6))


def test_records_that_cannot_be_replayed_are_not_written() -> None:
    """No start could replay them either: the broker would not start again."""
    files = SimFiles()

    async def contradict(opened: Opened) -> None:
        await submit_all(opened, 0, 2, [])
        pending = asyncio.ensure_future(opened.metadata.submit(change_number(2)))
        await asyncio.sleep(0)
        with pytest.raises(BadMetadata):
            await opened.metadata.submit([*change_number(3), *change_number(1)])
        await pending
        await submit_all(opened, 3, 6, [])
        assert same(opened.metadata.image, image_after(6))

    play(files, contradict)
    assert same(play(files, _image_of), image_after(6))


def test_failed_sync_shows_and_acknowledges_nothing() -> None:
    files = SimFiles()

    def broken(operation: str, path: str) -> None:
        if operation == "datasync" and "__cluster_metadata" in path:
            raise OSError(errno.EIO, "the disk is broken", path)

    async def fail(opened: Opened) -> None:
        await submit_all(opened, 0, 3, [])
        files.fault = broken
        outcomes = await asyncio.gather(
            *(opened.metadata.submit(change_number(number)) for number in (3, 5)), return_exceptions=True
        )
        files.fault = None
        for outcome in [*outcomes, await _outcome(opened.metadata.submit(change_number(6)))]:
            assert isinstance(outcome, ApiError)
            assert outcome.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert same(opened.metadata.image, image_after(3)), "changes that may be lost are not visible"

    play(files, fail)
    files.lose_power(Random(5))
    assert changes_in(play(files, _image_of), 4) >= 3


async def _outcome(awaitable: Awaitable[object]) -> object:
    try:
        return await awaitable
    except ApiError as error:
        return error


def test_many_changes_share_a_sync() -> None:
    files = SimFiles()
    syncs = count()

    def counted(operation: str, path: str) -> None:
        if operation == "datasync" and "__cluster_metadata" in path:
            next(syncs)

    async def crowd(opened: Opened) -> None:
        await opened.metadata.submit(change_number(0))
        files.fault = counted
        await asyncio.gather(
            *(
                opened.metadata.submit([ConfigRecord(32, f"group-{number}", "share.isolation.level", "x")])
                for number in range(200)
            )
        )
        assert len(opened.metadata.image.configs) == 202

    play(files, crowd)
    assert next(syncs) <= 3


def creation(name: str) -> Callable[[MetadataImage], ControllerResult[CreateTopicsResponse]]:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)])
    chance = Randomness(bytes([number]) * 16 for number in count(1))
    return lambda image: decide_create_topics(image, Settings(), request, chance)


def test_concurrent_creation_reports_already_exists_after_commit() -> None:
    async def race(opened: Opened) -> None:
        await opened.metadata.submit([RegisterBrokerRecord(1, fenced=False, log_dirs=[b"d" * 16])])
        codes: list[int] = []

        async def create() -> None:
            answer = await opened.metadata.change(creation("t"))
            codes.append(answer.topics[0].error_code)
            assert "t" in opened.metadata.image.topics

        tasks = [asyncio.ensure_future(create()) for _ in range(3)]
        await asyncio.sleep(0)
        assert "t" not in opened.metadata.image.topics, "visible before it is durable"
        assert codes == []
        await asyncio.gather(*tasks)
        assert sorted(codes) == [0, ErrorCode.TOPIC_ALREADY_EXISTS.code, ErrorCode.TOPIC_ALREADY_EXISTS.code]

    play(SimFiles(), race)


def test_cancelled_request_does_not_affect_the_log() -> None:
    async def leave(opened: Opened) -> None:
        task = asyncio.ensure_future(opened.metadata.submit(change_number(0)))
        await asyncio.sleep(0)
        task.cancel()
        await opened.metadata.submit(change_number(1))
        assert same(opened.metadata.image, image_after(2))

    play(SimFiles(), leave)


def test_log_of_a_newer_release_is_rejected() -> None:
    files = SimFiles()

    async def write(opened: Opened) -> None:
        # Frame version 1, an unknown record type, version 0.
        batch = build_batch([Record(0, 0, None, b"\x01\xf0\x7f\x00")])
        opened.log.stage(memoryview(batch), 1, 0, Origin.COORDINATOR)
        opened.log.write_staged()

    play(files, write)
    with pytest.raises(BadMetadata, match="newer release"):
        play(files, _image_of)


def test_log_settings_of_the_metadata_log() -> None:
    async def look(opened: Opened) -> LogConfig:
        log = opened.disk.open_log(METADATA_PARTITION, METADATA_TOPIC_ID, opened.log.config)
        return log.config

    config = play(SimFiles(), look)
    assert config == replace(config, retention_ms=-1, retention_bytes=-1, cleanup_compact=False)


PARTITIONS_PER_TOPIC = 1000
SMALL_SEGMENTS = {"metadata.log.segment.bytes": str(1024 * 1024)}


def topic_of_many(number: int, partitions: int = PARTITIONS_PER_TOPIC) -> list[MetadataRecord]:
    topic_id = (number + 1).to_bytes(16, "big")
    directory = b"d" * 16
    return [
        TopicRecord(f"many-{number}", topic_id),
        *(
            PartitionRecord(index, topic_id, [1], [1], [], [], 1, directories=[directory])
            for index in range(partitions)
        ),
    ]


def test_an_image_may_be_many_times_larger_than_a_segment() -> None:
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        for number in range(40):
            await opened.metadata.submit(topic_of_many(number))
        await opened.metadata.close()

    async def look(opened: Opened) -> int:
        assert opened.metadata.image.partition_count == 40_000
        start, end = opened.log.log_start_offset, opened.log.end_offset
        assert start > 0 and end - start < 40_000, "a snapshot took the place of most of the log"
        await opened.metadata.submit(topic_of_many(40))
        return opened.metadata.image.partition_count

    play(files, fill, settings=SMALL_SEGMENTS)
    assert play(files, look, settings=SMALL_SEGMENTS) == 41_000
    assert play(files, _image_of, settings=SMALL_SEGMENTS).partition_count == 41_000
    names = [name for name in files.names("/data/__cluster_metadata-0") if name.endswith(".checkpoint")]
    assert len(names) <= 2, "older snapshots are removed"


def test_a_change_larger_than_a_batch_is_rejected_and_harms_nothing() -> None:
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        with pytest.raises(ApiError) as refused:
            await opened.metadata.submit(topic_of_many(0, partitions=20_000))
        assert refused.value.error is ErrorCode.POLICY_VIOLATION
        assert "metadata.log.segment.bytes" in str(refused.value)
        await opened.metadata.submit(topic_of_many(0))

    play(files, fill, settings=SMALL_SEGMENTS)
    assert play(files, _image_of, settings=SMALL_SEGMENTS).partition_count == PARTITIONS_PER_TOPIC


def test_private_records_of_earlier_releases_are_replaced_by_a_snapshot() -> None:
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        await opened.metadata.submit([ClusterRecord("id of the cluster")])
        await submit_all(opened, 0, 7, [])

    async def look(opened: Opened) -> int:
        assert opened.metadata.image.cluster_id == "id of the cluster"
        assert opened.log.log_start_offset == 0
        opened.metadata.replace_private_records()
        await asyncio.sleep(1)
        await opened.finish()
        return opened.log.log_start_offset

    play(files, fill)
    assert play(files, look) > 20, "the log begins after them"
    (name,) = [name for name in files.names("/data/__cluster_metadata-0") if name.endswith(".checkpoint")]
    assert b"id of the cluster" not in files.read(f"/data/__cluster_metadata-0/{name}")
    assert same(play(files, _image_of), image_after(7))


def test_a_damaged_snapshot_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS_MIN", 5)
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        await submit_all(opened, 0, 12, [])
        await opened.metadata.close()

    play(files, fill)
    folder = "/data/__cluster_metadata-0"
    names = sorted(name for name in files.names(folder) if name.endswith(".checkpoint"))
    *older, newest = (files.read(f"{folder}/{name}") for name in names)
    for name, whole in zip(names, older, strict=False):
        files.write(f"{folder}/{name}", whole[:-10], sync=True)
    for damaged in (newest[:-10], newest[: len(newest) // 2], newest[:80] + b"?" + newest[81:]):
        files.write(f"{folder}/{names[-1]}", damaged, sync=True)
        with pytest.raises(BadMetadata, match="snapshot"):
            play(files, _image_of)
    for name, whole in zip(names, older, strict=False):
        files.write(f"{folder}/{name}", whole, sync=True)
    assert same(play(files, _image_of), image_after(12)), "the older one and the log have everything"


def test_a_snapshot_that_is_missing_is_not_taken_for_an_empty_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing follows it in the log, which looked like metadata without topics: a new cluster id, no data."""
    monkeypatch.setattr(metadata_snapshots, "SNAPSHOT_RECORDS_MIN", 5)
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        while opened.log.log_start_offset == 0:
            await opened.metadata.submit([ConfigRecord(4, "", "message.max.bytes", "1000")])

    play(files, fill)
    folder = "/data/__cluster_metadata-0"
    for name in files.names(folder):
        if name.endswith(".checkpoint"):
            files.remove(f"{folder}/{name}")
    with pytest.raises(BadMetadata, match="no snapshot"):
        play(files, _image_of)


def test_a_log_that_ends_before_its_snapshot_continues_there() -> None:
    """A snapshot of the leader was stored, and the node stopped before its log was replaced."""
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        await submit_all(opened, 0, 8, [])
        image = opened.metadata.image
        snapshot = SnapshotId(image.version, 1)
        opened.disk.snapshots(METADATA_PARTITION).write(snapshot, snapshot_batches(image, 0, 1))
        opened.log.truncate_to(6)

    async def look(opened: Opened) -> int:
        assert same(opened.metadata.image, image_after(8))
        return opened.log.log_start_offset

    play(files, fill)
    assert play(files, look) > 6


def test_a_log_with_a_damaged_batch_is_not_guessed_at() -> None:
    """Another name is as good as the one that was stored, but for the checksum."""
    files = SimFiles()

    async def fill(opened: Opened) -> None:
        await submit_all(opened, 0, 3, [])
        await opened.finish()

    play(files, fill)
    path = f"/data/__cluster_metadata-0/{0:020}.log"
    files.flip_bit(path, files.read(path).index(b"topic-1"))
    with pytest.raises(BadMetadata, match="offset 4 of the metadata log is corrupt"):
        play(files, _image_of)
