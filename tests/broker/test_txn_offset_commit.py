"""TxnOffsetCommit over the wire: every version, errors, and restarts."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime.promise import Promise
from runnel.disk.disk_log import DiskLog
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.group_calls import NONE, codes, commit_request, fetch, join, play, sync_request
from tests.broker.world import BrokerWorld, Client

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.code
ADD_GROUP_VERSION = 5
"""From this version on the server adds the group to the transaction, and EndTxn bumps the epoch."""

TRANSACTIONS_TYPE = 1


@dataclass
class Writer:
    """A transactional producer that commits offsets."""

    client: Client
    version: int
    producer_id: int = -1
    epoch: int = -1

    async def begin(self) -> None:
        """Initialise the producer, fencing the previous one."""
        asked = FindCoordinatorRequest(key_type=TRANSACTIONS_TYPE, coordinator_keys=["x"])
        while (await self.client.ask(asked, 4)).coordinators[0].error_code:
            await asyncio.sleep(0)
        request = InitProducerIdRequest("x", 60_000)
        while (reply := await self.client.ask(request, 5)).error_code:
            code = ErrorCode.from_code(reply.error_code)
            assert code.retriable or code is ErrorCode.CONCURRENT_TRANSACTIONS, code
            await asyncio.sleep(0)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    async def add(self, group: str = "g") -> None:
        if self.version < ADD_GROUP_VERSION:
            request = AddOffsetsToTxnRequest("x", self.producer_id, self.epoch, group)
            while (reply := await self.client.ask(request, 3)).error_code:
                assert reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS.code
                await asyncio.sleep(0)

    def request(self, offsets: dict[int, int], topic: str = "t", **fields: Any) -> TxnOffsetCommitRequest:
        parts = [
            TxnOffsetCommitRequestPartition(index, offset, 7, "note") for index, offset in offsets.items()
        ]
        named = {"transactional_id": "x", "group_id": "g", **fields}
        named.setdefault("producer_id", self.producer_id)
        named.setdefault("producer_epoch", self.epoch)
        return TxnOffsetCommitRequest(topics=[TxnOffsetCommitRequestTopic(topic, parts)], **named)

    async def commit_offsets(self, offsets: dict[int, int], **fields: Any) -> list[int]:
        return codes(await self.client.ask(self.request(offsets, **fields), self.version))

    async def end(self, committed: bool = True) -> None:
        request = EndTxnRequest("x", self.producer_id, self.epoch, committed)
        reply = await self.client.ask(request, 5 if self.version >= ADD_GROUP_VERSION else 3)
        assert reply.error_code == NONE
        if self.version >= ADD_GROUP_VERSION:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch


async def stable(client: Client, *partitions: int) -> list[tuple[int, int]]:
    """(offset, error) of each partition with require_stable."""
    topics = [OffsetFetchRequestTopics("t", partition_indexes=list(partitions))]
    groups = [OffsetFetchRequestGroup("g", topics=topics)]
    reply = await client.ask(OffsetFetchRequest(groups=groups, require_stable=True), 9)
    return [(part.committed_offset, part.error_code) for part in reply.groups[0].topics[0].partitions]


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_visible_after_commit(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, version)
        await writer.begin()
        await writer.add()
        assert await writer.commit_offsets({0: 5, 1: 6, 9: 7}) == [NONE, NONE, UNKNOWN]
        assert await fetch(client, 0, 1) == {0: -1, 1: -1}
        assert await stable(client, 0, 1) == [(-1, UNSTABLE), (-1, UNSTABLE)]
        await writer.end()
        assert await stable(client, 0, 1) == [(5, NONE), (6, NONE)]
        reply = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        (topic,) = reply.topics
        first = topic.partitions[0]
        assert (first.committed_leader_epoch, first.metadata) == (7 if version >= 2 else -1, "note")
        await writer.add()
        assert await writer.commit_offsets({0: 50}) == [NONE]
        await writer.end(committed=False)
        assert await stable(client, 0, 1) == [(5, NONE), (6, NONE)]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [7, 8])
def test_fetch_without_require_stable_returns_previous_offsets(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(commit_request({0: 1}), 8)
        writer = Writer(client, 5)
        await writer.begin()
        await writer.commit_offsets({0: 2})
        for require_stable, expected in ((True, (-1, UNSTABLE)), (False, (1, NONE))):
            if version >= 8:
                topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
                groups = [OffsetFetchRequestGroup("g", topics=topics)]
                request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
                (topic,) = (await client.ask(request, version)).groups[0].topics
            else:
                named = [OffsetFetchRequestTopic("t", [0])]
                request = OffsetFetchRequest(group_id="g", topics=named, require_stable=require_stable)
                (topic,) = (await client.ask(request, version)).topics
            (part,) = topic.partitions
            assert (part.committed_offset, part.error_code) == expected
            assert part.committed_leader_epoch == (-1 if require_stable else 7)

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_pending_offsets_survive_a_restart(tmp_path: Path, version: int, is_committed: bool) -> None:
    writer = Writer(None, version)  # type: ignore[arg-type]

    async def before(world: BrokerWorld, client: Client) -> None:
        writer.client = client
        await client.ask(commit_request({0: 1}), 8)
        await writer.begin()
        await writer.add()
        assert await writer.commit_offsets({0: 2}) == [NONE]

    async def between(world: BrokerWorld, client: Client) -> None:
        writer.client = client
        await client.ask(FindCoordinatorRequest(key_type=TRANSACTIONS_TYPE, coordinator_keys=["x"]), 4)
        assert await stable(client, 0) == [(-1, UNSTABLE)]
        while not all(driver.is_loaded for driver in world.broker.transactions._drivers.values()):
            await asyncio.sleep(0)
        await writer.end(is_committed)
        assert await stable(client, 0) == [(2 if is_committed else 1, NONE)]

    async def after(world: BrokerWorld, client: Client) -> None:
        assert await stable(client, 0) == [(2 if is_committed else 1, NONE)]

    play(tmp_path, before)
    play(tmp_path, between)
    play(tmp_path, after)


def test_new_producer_aborts_the_open_transaction(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        zombie, heir = Writer(client, 5), Writer(client, 5)
        await zombie.begin()
        assert await zombie.commit_offsets({0: 5}) == [NONE]
        await heir.begin()
        assert await stable(client, 0) == [(-1, NONE)]
        assert await zombie.commit_offsets({0: 6}) == [ErrorCode.INVALID_PRODUCER_EPOCH.code]
        assert await heir.commit_offsets({0: 7}) == [NONE]
        await heir.end()
        assert await stable(client, 0) == [(7, NONE)]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [3, 4])
def test_group_outside_of_the_transaction_is_rejected(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, version)
        await writer.begin()
        abortable = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await writer.commit_offsets({0: 5}) == [abortable.code]
        assert await stable(client, 0) == [(-1, NONE)]

    play(tmp_path, scenario)


def test_errors(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, 5)
        await writer.begin()
        assert await writer.commit_offsets({0: 5}, topic="nowhere") == [UNKNOWN]
        assert await writer.commit_offsets({0: 5}, group_id="") == [ErrorCode.INVALID_GROUP_ID.code]
        assert await writer.commit_offsets({0: 5}, producer_id=writer.producer_id + 1) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING.code
        ]
        assert await writer.commit_offsets({0: 5}, producer_epoch=writer.epoch + 1) == [
            ErrorCode.INVALID_PRODUCER_EPOCH.code
        ]
        member = await join(client)
        await client.ask(sync_request(member, {}), 5)
        assert await writer.commit_offsets({0: 5}, generation_id=7, member_id=member.member_id) == [
            ErrorCode.ILLEGAL_GENERATION.code
        ]
        assert await writer.commit_offsets({0: 5}, generation_id=1, member_id="unknown") == [
            ErrorCode.UNKNOWN_MEMBER_ID.code
        ]
        right = {"generation_id": 1, "member_id": member.member_id}
        assert await writer.commit_offsets({0: 5}, **right) == [NONE]
        assert codes(await client.ask(TxnOffsetCommitRequest("x", "g"), 5)) == []

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_loading_error_by_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, version)
        await writer.begin()
        await writer.add()
        world.broker.groups.driver_of("g").is_loaded = False
        error = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        assert await writer.commit_offsets({0: 5}) == [error.code]

    play(tmp_path, scenario)


def test_verification_after_completion_does_not_start_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, 3)
        await writer.begin()
        await writer.add()
        late: Promise[dict[TopicPartition, ErrorCode]] = Promise()
        late_client = await world.connect()
        with monkeypatch.context() as slow:
            slow.setattr(world.broker.transactions, "verify", lambda *_, **__: late)
            late_client.send(writer.request({0: 5}), 3)
            stored = world.broker.groups.driver_of("g").partition.log
            assert isinstance(stored, DiskLog)
            while stored.producer_state.get()._guards == {}:
                await asyncio.sleep(0)
        await writer.end()
        late.resolve({})
        assert codes(await late_client.receive()) == [ErrorCode.INVALID_TXN_STATE.code]
        assert await stable(client, 0) == [(-1, NONE)]

    play(tmp_path, scenario)


def test_the_marker_of_the_previous_transaction_arrives_during_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EndTxn is answered before the markers are written, so the next transaction may be here before them."""

    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, ADD_GROUP_VERSION)
        await writer.begin()
        answer: Promise[dict[TopicPartition, ErrorCode]] = Promise()
        other = await world.connect()
        with monkeypatch.context() as slow:
            slow.setattr(world.broker.transactions, "verify", lambda *_, **__: answer)
            other.send(writer.request({0: 5}), ADD_GROUP_VERSION)
            partition = world.broker.groups.driver_of("g").partition
            assert isinstance(partition.log, DiskLog)
            while partition.log.producer_state.get()._guards == {}:
                await asyncio.sleep(0)
        partition.append_marker(writer.producer_id, writer.epoch, 0, True, 0, 2)
        answer.resolve({})
        assert codes(await other.receive()) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code]
        # The client repeats it.
        assert await writer.commit_offsets({0: 5}) == [NONE]

    play(tmp_path, scenario)


def test_a_bug_after_the_verification_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, ADD_GROUP_VERSION)
        await writer.begin()

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug behind the verification")

        monkeypatch.setattr(world.broker.groups, "write", fail)
        client.send(writer.request({0: 5}), ADD_GROUP_VERSION)
        assert await client.is_closed()

    # The verification is a promise only while the coordinator's record waits for the disk.
    play(tmp_path, scenario, log_flush_policy="commit")
    assert "a bug behind the verification" in caplog.text


def test_deleted_offsets_are_not_restored_by_the_transaction(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        writer = Writer(client, 5)
        await writer.begin()
        await world.create("doomed")
        assert await writer.commit_offsets({0: 5}, topic="doomed") == [NONE]
        assert await writer.commit_offsets({0: 6}) == [NONE]
        world.broker.groups.topics_deleted(["doomed"])
        await writer.end()
        assert await fetch(client, topic="doomed") == {}
        assert await fetch(client) == {0: 6}

    play(tmp_path, scenario)
