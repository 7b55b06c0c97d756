"""Requests between controllers that are malformed, stale, or from elsewhere: Kafka's error, and no effect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    vote,
)
from runnel.messages.update_raft_voter import KRaftVersionFeature, Listener, UpdateRaftVoterRequest
from runnel.model.errors import ErrorCode
from runnel.wire import Request
from tests.broker.quorum_world import LISTENER, Member, QuorumWorld, in_loop, until

METADATA = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"


def vote_request(cluster_id: str | None, topic: str = METADATA, partition: int = 0) -> Request:
    data = vote.PartitionData(partition, replica_epoch=99, replica_id=2)
    return vote.VoteRequest(cluster_id, 1, [vote.TopicData(topic, [data])])


def begin_request(cluster_id: str | None, topic: str = METADATA, partition: int = 0) -> Request:
    data = begin_quorum_epoch.PartitionData(partition, leader_id=2, leader_epoch=99)
    topics = [begin_quorum_epoch.TopicData(topic, [data])]
    return begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id, 1, topics)


def end_request(cluster_id: str | None, topic: str = METADATA, partition: int = 0) -> Request:
    data = end_quorum_epoch.PartitionData(partition, leader_id=2, leader_epoch=99)
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id, [end_quorum_epoch.TopicData(topic, [data])])


def fetch_request(cluster_id: str | None, topic: str = METADATA, partition: int = 0) -> Request:
    data = fetch.FetchPartition(partition, 1, 0, 0)
    # In this version the topic is named by its id, which is not that of another partition.
    topics = [fetch.FetchTopic(topic, TOPIC_ID, [data])]
    return fetch.FetchRequest(cluster_id, replica_state=fetch.ReplicaState(9), topics=topics)


def snapshot_request(cluster_id: str | None, topic: str = METADATA, partition: int = 0) -> Request:
    data = fetch_snapshot.PartitionSnapshot(partition, 1)
    topics = [fetch_snapshot.TopicSnapshot(topic, [data])]
    return fetch_snapshot.FetchSnapshotRequest(cluster_id, 9, topics=topics)


BUILDERS = [vote_request, begin_request, end_request, fetch_request, snapshot_request]


async def ask(member: Member, request: Request) -> Any:
    channel = member.peers.channel("127.0.0.1", member.port, "test")
    try:
        return await channel.send(request, timeout_ms=10_000)
    finally:
        channel.close()


@pytest.mark.parametrize("build", BUILDERS)
def test_another_cluster_or_partition_is_rejected(build: Callable[..., Request], tmp_path: Path) -> None:
    @in_loop
    async def scenario() -> None:
        async with QuorumWorld(tmp_path, 1) as world:
            leader = await world.leader()
            leader.broker.cluster_id = "this one"
            foreign = await ask(leader, build("another one"))
            assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID.code
            other = await ask(leader, build("this one", partition=1))
            assert other.error_code == ErrorCode.INVALID_REQUEST.code
            assert (leader.quorum.epoch, leader.quorum.is_leader) == (1, True)

    scenario()


@in_loop
async def test_another_cluster_cannot_change_the_voters(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 2, is_dynamic=True) as world:
        leader, other = world.members[1], world.members[2]
        await until(lambda: leader.quorum.is_leader)
        leader.broker.cluster_id = "this one"
        listeners = [add_raft_voter.Listener(LISTENER, "127.0.0.1", other.port)]
        for request in (
            add_raft_voter.AddRaftVoterRequest("another one", 1000, *other.key, listeners),
            remove_raft_voter.RemoveRaftVoterRequest("another one", *leader.key),
            UpdateRaftVoterRequest(
                "another one", leader.quorum.epoch, *leader.key, [Listener(LISTENER, "elsewhere", 1)]
            ),
        ):
            response = await ask(leader, request)
            assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID.code
        assert [voter.key for voter in leader.quorum.voters] == [leader.key]
        assert leader.quorum.leader_endpoint() == (1, "127.0.0.1", leader.port)


@in_loop
async def test_a_candidate_that_is_no_voter_or_asks_another_node_changes_nothing(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 1) as world:
        leader = await world.leader()
        epoch, own = leader.quorum.epoch, leader.key

        async def answer(asked: tuple[int, bytes], candidate_epoch: int, last_epoch: int) -> Any:
            data = vote.PartitionData(0, candidate_epoch, 9, b"candidate-folder", asked[1], last_epoch, 10**6)
            topics = [vote.TopicData(METADATA, [data])]
            response = await ask(leader, vote.VoteRequest(None, asked[0], topics))
            return response.topics[0].partitions[0]

        for asked, candidate_epoch, last_epoch, error in (
            (own, epoch, 0, ErrorCode.NONE),
            ((own.id, b"another folder.."), epoch, 0, ErrorCode.INVALID_VOTER_KEY),
            ((7, own.directory_id), epoch, 0, ErrorCode.INVALID_VOTER_KEY),
            (own, epoch, epoch, ErrorCode.INVALID_REQUEST),
            (own, epoch, -1, ErrorCode.INVALID_REQUEST),
        ):
            found = await answer(asked, candidate_epoch, last_epoch)
            assert (found.error_code, found.vote_granted) == (error.code, False), (asked, candidate_epoch)
            assert (found.leader_id, found.leader_epoch) == (1, epoch)
        assert leader.quorum.is_leader


@in_loop
async def test_fetches_that_the_leader_rejects(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 1) as world:
        leader = await world.leader()
        cases = {
            (0, 0, 0): ErrorCode.FENCED_LEADER_EPOCH,
            (9, 0, 0): ErrorCode.UNKNOWN_LEADER_EPOCH,
            (1, 0, -1): ErrorCode.INVALID_REQUEST,
        }
        for (epoch, offset, last_epoch), error in cases.items():
            data = fetch.FetchPartition(0, epoch, offset, last_epoch)
            topics = [fetch.FetchTopic(METADATA, TOPIC_ID, [data])]
            request = fetch.FetchRequest(replica_state=fetch.ReplicaState(9), topics=topics)
            response = await ask(leader, request)
            partition = response.responses[0].partitions[0]
            assert partition.error_code == error.code
            # The response reports who leads, and where.
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
            assert [each.port for each in response.node_endpoints] == [leader.port]


@in_loop
async def test_the_leader_describes_voters_and_observers(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 2, observers=1) as world:
        leader = await world.leader()
        await world.committed(leader.append(b"x"))
        topics = [describe_quorum.TopicData(METADATA, [describe_quorum.PartitionData(0)])]
        response = await ask(leader, describe_quorum.DescribeQuorumRequest(topics))
        partition = response.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch) == (leader.id, leader.quorum.epoch)
        ends = {each.replica_id: each.log_end_offset for each in partition.current_voters}
        assert ends == {1: 2, 2: 2}
        # Voters that are configured are known by their ids, observers also by their directories.
        assert {each.replica_directory_id for each in partition.current_voters} == {bytes(16)}
        observer = partition.observers[0]
        assert (observer.replica_id, observer.replica_directory_id) == world.members[3].key
        assert {node.node_id: node.listeners[0].port for node in response.nodes} == {
            node_id: world.ports[node_id] for node_id in (1, 2)
        }


@in_loop
async def test_a_page_of_a_snapshot_that_does_not_exist(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 1) as world:
        leader = await world.leader()
        snapshot = leader.write_snapshot(1)
        cases = {
            (5, 1, 0): ErrorCode.SNAPSHOT_NOT_FOUND,
            (0, 0, 0): ErrorCode.SNAPSHOT_NOT_FOUND,
            (*snapshot, 10**6): ErrorCode.POSITION_OUT_OF_RANGE,
            (*snapshot, 2**63 - 1): ErrorCode.POSITION_OUT_OF_RANGE,
            (*snapshot, -1): ErrorCode.POSITION_OUT_OF_RANGE,
            (*snapshot, 10): ErrorCode.NONE,
        }
        for (end_offset, epoch, position), error in cases.items():
            wanted = fetch_snapshot.SnapshotId(end_offset, epoch)
            data = fetch_snapshot.PartitionSnapshot(0, 1, wanted, position)
            topics = [fetch_snapshot.TopicSnapshot(METADATA, [data])]
            response = await ask(leader, fetch_snapshot.FetchSnapshotRequest(None, 9, 20, topics))
            page = response.topics[0].partitions[0]
            assert page.error_code == error.code
            assert len(page.unaligned_records) == (20 if error is ErrorCode.NONE else 0)


@in_loop
async def test_voters_that_report_what_they_are_not(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 1) as world:
        leader = await world.leader()

        async def error_of(voter_id: int, epoch: int, listener: str) -> int:
            request = UpdateRaftVoterRequest(
                None, epoch, voter_id, bytes(16), [Listener(listener, "h", 1)], KRaftVersionFeature(0, 1)
            )
            code: int = (await ask(leader, request)).error_code
            return code

        assert await error_of(1, 1, LISTENER) == ErrorCode.NONE.code
        assert await error_of(9, 1, LISTENER) == ErrorCode.VOTER_NOT_FOUND.code
        assert await error_of(1, 1, "OTHER") == ErrorCode.INVALID_REQUEST.code
        assert await error_of(1, 0, LISTENER) == ErrorCode.FENCED_LEADER_EPOCH.code
        assert await error_of(1, 2, LISTENER) == ErrorCode.UNKNOWN_LEADER_EPOCH.code


@pytest.mark.parametrize("build", BUILDERS)
@in_loop
async def test_a_member_that_has_left_the_quorum_answers_no_request(
    tmp_path: Path, build: Callable[..., Request]
) -> None:
    """It stores nothing any more: a vote that it granted would be forgotten, and granted again."""
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        follower = next(each for each in world.members.values() if each is not leader)
        state = tmp_path / f"{follower.id}/__cluster_metadata-0/quorum-state"
        stored = state.read_text()
        # As when a node stops: its listeners are closed afterwards.
        await follower.quorum.close()
        response = await ask(follower, build(None))
        assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE.code
        assert state.read_text() == stored
