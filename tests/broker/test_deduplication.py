"""Idempotency keys at the leader of a partition: duplicates, failures, restarts, changes of the leader."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.header import read_header
from runnel.batch.records import IDEMPOTENCY_KEY_HEADER, Record
from runnel.broker.runtime import deduplication
from runnel.disk.os_files import OsFile
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.model.errors import ErrorCode
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica
from tests.broker.replicas import Replicas, until
from tests.broker.requests import NOW_MS, batch, fetch_from, only, produce_to, values
from tests.broker.world import BrokerWorld, Client

Scenario = Callable[[BrokerWorld, Client], Awaitable[None]]

HOUR = "3600000"


def keyed(key: bytes, value: bytes, timestamp_ms: int = NOW_MS, **options: Any) -> bytes:
    headers = [(IDEMPOTENCY_KEY_HEADER, key)]
    return bytes(build_batch([Record(0, timestamp_ms, None, value, headers)], **options))


def play(folder: Path, scenario: Scenario, window_ms: str = HOUR, **configs: str) -> None:
    async def run() -> None:
        async with BrokerWorld(folder) as world:
            if "t" not in world.broker.metadata.image.topics:
                await world.create("t", 1, dedup_window_ms=window_ms, **configs)
            await scenario(world, await world.connect())

    asyncio.run(run())


async def send(client: Client, records: bytes, acks: int = -1, version: int = 9) -> tuple[str, int]:
    """The name of the error, and the offset."""
    answer = only(await client.ask(produce_to("t", (0, records), acks=acks), version))
    return ErrorCode.from_code(answer.error_code).name, answer.base_offset


async def sent(client: Client, records: bytes) -> int:
    """The offset of a record, which is sent until the keys of the log are read."""
    while True:
        error, offset = await send(client, records)
        if error != "LEADER_NOT_AVAILABLE":
            assert error == "NONE", error
            return offset
        await asyncio.sleep(0.005)


async def stored(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while True:
        part = only(await client.ask(fetch_from("t", (0, len(found))), 12))
        if part.high_watermark == len(found):
            return found
        # A segment at a time.
        found += values(part.records)


def test_a_record_that_is_sent_again_is_stored_once(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)
        assert await send(client, batch(b"without")) == ("NONE", 1)
        assert await send(client, keyed(b"b", b"1")) == ("NONE", 2)
        for options in ({}, {"timestamp_ms": NOW_MS + 5}, {"compression": Compression.GZIP}):
            assert await send(client, keyed(b"a", b"1", **options)) == ("NONE", 0)
        assert await send(client, keyed(b"a", b"1"), acks=1) == ("NONE", 0)
        other = await world.connect()
        assert await send(other, keyed(b"b", b"1"), version=12) == ("NONE", 2)
        assert await stored(client) == [b"1", b"without", b"1"]
        assert world.broker.partition("t", 0).traffic.duplicates == 5

    play(tmp_path, scenario)


def test_another_record_with_the_key_is_refused(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await send(client, keyed(b"a", b"1"))
        answer = only(await client.ask(produce_to("t", (0, keyed(b"a", b"2"))), 9))
        assert answer.error_code == ErrorCode.DUPLICATE_RESOURCE.code
        assert "at offset 0" in answer.error_message
        assert await stored(client) == [b"1"]

    play(tmp_path, scenario)


def test_requests_that_arrive_together(tmp_path: Path) -> None:
    """They are staged in one turn, as a run: the first is not even written when the second is looked at."""

    async def scenario(world: BrokerWorld, client: Client) -> None:
        records = [keyed(b"a", b"1"), keyed(b"a", b"1"), keyed(b"a", b"2"), batch(b"x"), keyed(b"b", b"1")]
        for each in [*records, *records]:
            client.send(produce_to("t", (0, each)), 9)
        answers = [only(await client.receive()) for _ in range(10)]
        refused = ErrorCode.DUPLICATE_RESOURCE.code
        assert [each.error_code for each in answers] == [0, 0, refused, 0, 0] * 2
        assert [each.base_offset for each in answers] == [0, 0, -1, 1, 2, 0, 0, -1, 3, 2]
        assert await stored(client) == [b"1", b"x", b"1", b"x"]

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "records",
    [
        bytes(
            build_batch(
                [
                    Record(0, NOW_MS, None, b"1", [(IDEMPOTENCY_KEY_HEADER, b"a")]),
                    Record(1, NOW_MS, None, b"2"),
                ]
            )
        ),
        keyed(b"a", b"1", producer_id=5, producer_epoch=0, base_sequence=0),
    ],
)
def test_what_may_not_have_a_key(tmp_path: Path, records: bytes) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert await send(client, records) == ("INVALID_RECORD", -1)
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)

    play(tmp_path, scenario)


def test_idempotent_producers_write_records_without_keys_as_ever(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        for sequence in (0, 1, 1, 0, 2):
            records = batch(b"%d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
            assert await send(client, records) == ("NONE", sequence)
        assert await stored(client) == [b"0", b"1", b"2"]

    play(tmp_path, scenario)


def test_topics_without_the_setting_do_not_look_for_keys(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert world.broker.partition("t", 0).dedup is None
        for offset in range(3):
            assert await send(client, keyed(b"a", b"%d" % offset)) == ("NONE", offset)

    play(tmp_path, scenario, window_ms="0")


def test_a_record_with_a_key_has_the_time_of_its_append(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        answers = [only(await client.ask(produce_to("t", (0, keyed(b"a", b"1", 5))), 9)) for _ in range(2)]
        assert answers[0].log_append_time_ms == answers[1].log_append_time_ms > NOW_MS
        await send(client, batch(b"x", timestamp_ms=5))
        found = only(await client.ask(fetch_from("t", (0, 0)), 12)).records
        header = read_header(found)
        assert header.uses_log_append_time and header.max_timestamp == answers[0].log_append_time_ms
        other = read_header(found, header.size_bytes)
        assert not other.uses_log_append_time and other.max_timestamp == 5

    play(tmp_path, scenario)


def test_a_record_that_could_not_be_written_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    async def scenario(world: BrokerWorld, client: Client) -> None:
        await send(client, keyed(b"a", b"1"))
        with monkeypatch.context() as full:
            full.setattr(OsFile, "pwritev", no_space)
            for _ in range(2):
                client.send(produce_to("t", (0, keyed(b"b", b"1"))), 9)
            for _ in range(2):
                failed = only(await client.receive())
                assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
            assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)
        assert await send(client, keyed(b"b", b"2")) == ("NONE", 1)
        assert await stored(client) == [b"1", b"2"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("flush_policy", ["never", "commit"])
def test_keys_are_read_from_the_log_after_a_restart(tmp_path: Path, flush_policy: str) -> None:
    async def first(world: BrokerWorld, client: Client) -> None:
        await send(client, batch(b"x", timestamp_ms=NOW_MS))
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 1)
        await send(client, batch(*[b"y"] * 5, timestamp_ms=NOW_MS))
        assert await send(client, keyed(b"b", b"1", compression=Compression.GZIP)) == ("NONE", 7)

    async def later(world: BrokerWorld, client: Client) -> None:
        assert await sent(client, keyed(b"b", b"1")) == 7
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 1)
        assert await send(client, keyed(b"a", b"2")) == ("DUPLICATE_RESOURCE", -1)
        assert len(await stored(client)) == 8

    play(tmp_path, first, flush_policy=flush_policy)
    for _ in range(2):
        play(tmp_path, later)


def test_a_log_of_several_parts_and_segments_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication, "READ_BYTES", 1000)
    count = 200

    async def first(world: BrokerWorld, client: Client) -> None:
        for number in range(count):
            assert await send(client, keyed(b"%d" % number, b"x" * 100)) == ("NONE", number)
            if number % 50 == 49:
                world.broker.partition("t", 0).log.roll_now()  # type: ignore[attr-defined]

    async def later(world: BrokerWorld, client: Client) -> None:
        for number in range(count):
            assert await sent(client, keyed(b"%d" % number, b"x" * 100)) == number
        assert len(await stored(client)) == count

    play(tmp_path, first)
    play(tmp_path, later)


def test_other_records_do_not_wait_while_keys_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(world: BrokerWorld, client: Client) -> None:
        await send(client, keyed(b"a", b"1"))

    async def later(world: BrokerWorld, client: Client) -> None:
        partition = world.broker.partition("t", 0)
        held: list[Any] = []
        with monkeypatch.context() as stuck:
            stuck.setattr(deduplication.Deduplication, "_found_keys", lambda *found: held.append(found))
            partition.become_follower(FollowerReplica(1, partition.epoch + 1, leader=2))
            alone = frozenset({1})
            partition.become_leader(LeaderReplica(1, partition.epoch + 1, alone, alone))
            await until(lambda: held)
            assert await send(client, keyed(b"a", b"1")) == ("LEADER_NOT_AVAILABLE", -1)
            assert await send(client, batch(b"x")) == ("NONE", 1)
        deduplication.Deduplication._found_keys(*held[0])
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)

    play(tmp_path, first)
    play(tmp_path, later)


def test_a_failed_read_of_the_keys_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await send(client, keyed(b"a", b"1"))
        partition = world.broker.partition("t", 0)
        with monkeypatch.context() as broken:

            def fail(*_: object) -> bytes:
                raise OSError(errno.EMFILE, "too many open files")

            broken.setattr(OsFile, "pread", fail)
            partition.become_follower(FollowerReplica(1, partition.epoch + 1, leader=2))
            alone = frozenset({1})
            partition.become_leader(LeaderReplica(1, partition.epoch + 1, alone, alone))
            await until(lambda: "could not be read" in caplog.text)
        assert await sent(client, keyed(b"a", b"1")) == 0

    play(tmp_path, scenario)


def test_the_window_ends(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)
        await asyncio.sleep(0.02)
        assert await send(client, keyed(b"a", b"2")) == ("NONE", 1)

    play(tmp_path, scenario, window_ms="1")


def test_more_keys_than_are_allowed(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        for number in range(3):
            assert await send(client, keyed(b"%d" % number, b"1")) == ("NONE", number)
        assert await send(client, keyed(b"3", b"1")) == ("THROTTLING_QUOTA_EXCEEDED", -1)
        assert await send(client, keyed(b"0", b"1")) == ("NONE", 0)
        assert await send(client, batch(b"x")) == ("NONE", 3)
        await alter(client, "dedup.keys.max", "4")
        assert await send(client, keyed(b"3", b"1")) == ("NONE", 4)

    play(tmp_path, scenario, dedup_keys_max="3")


async def alter(client: Client, name: str, value: str) -> None:
    resource = AlterConfigsResource(2, "t", [AlterableConfig(name, 0, value)])
    response = await client.ask(IncrementalAlterConfigsRequest([resource]), 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def test_the_setting_is_changed_while_records_are_written(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 0)
        await alter(client, "dedup.window.ms", HOUR)
        assert await sent(client, keyed(b"a", b"1")) == 1, "the first was written without a promise"
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 1)
        await alter(client, "dedup.window.ms", "7200000")
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 1)
        await alter(client, "dedup.window.ms", "0")
        assert await send(client, keyed(b"a", b"1")) == ("NONE", 2)

    play(tmp_path, scenario, window_ms="0")


# Several replicas.


def on_replicas(tmp_path: Path, scenario: Callable[[Replicas], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Replicas(tmp_path) as replicas:
            await replicas.create("t", dedup_window_ms=HOUR)
            await scenario(replicas)

    asyncio.run(run())


def test_a_duplicate_is_not_acknowledged_before_the_first_is_committed(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        first, second = await replicas.connect(1), await replicas.connect(1)
        assert await send(first, batch(b"x")) == ("NONE", 0)
        leader = replicas.partition(1)
        for node in (2, 3):
            replicas.worlds[node].broker.replication.forget(leader.name)
        for client in (first, second):
            client.send(produce_to("t", (0, keyed(b"a", b"1"))), 9)
        await until(lambda: leader.traffic.duplicates == 1)
        assert leader.high_watermark == 1
        for node in (2, 3):
            replicas.worlds[node].broker.replication.opened(replicas.partition(node))
        for client in (first, second):
            answer = only(await client.receive())
            assert (answer.error_code, answer.base_offset) == (0, 1)
        assert leader.high_watermark == 2

    on_replicas(tmp_path, scenario)


def test_a_new_leader_knows_what_is_not_committed_yet(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        first = await replicas.connect(1)
        assert await send(first, batch(b"x")) == ("NONE", 0)
        # One follower has the record, the other has not.
        replicas.worlds[3].broker.replication.forget(replicas.partition(3).name)
        first.send(produce_to("t", (0, keyed(b"a", b"1"))), 9)
        await until(lambda: replicas.partition(2).log.written_offset == 2)
        await replicas.elect("t", 2)
        assert only(await first.receive()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        second = await replicas.connect(2)
        assert await sent(second, keyed(b"a", b"1")) == 1
        assert await stored(second) == [b"x", b"1"]

    on_replicas(tmp_path, scenario)


def test_a_record_that_only_the_former_leader_has_is_written_by_the_new_one(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        first = await replicas.connect(1)
        assert await send(first, batch(b"x")) == ("NONE", 0)
        former = replicas.partition(1)
        for node in (2, 3):
            replicas.worlds[node].broker.replication.forget(former.name)
        first.send(produce_to("t", (0, keyed(b"a", b"1"))), 9)
        await until(lambda: former.log.written_offset == 2)
        await replicas.elect("t", 2)
        assert only(await first.receive()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        second = await replicas.connect(2)
        assert await sent(second, batch(b"y")) == 1
        assert await sent(second, keyed(b"a", b"1")) == 2
        await until(lambda: former.log.written_offset == 3)
        # The former leader leads again: its record of the first epoch is gone.
        await replicas.elect("t", 1)
        assert await sent(first, keyed(b"a", b"1")) == 2
        assert await stored(first) == [b"x", b"y", b"1"]

    on_replicas(tmp_path, scenario)
