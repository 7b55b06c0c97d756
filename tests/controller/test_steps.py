"""Decisions over more partitions than one step looks at."""

from typing import Any

import pytest

from runnel.controller import alter_partition, broker_changes, directories, elections
from runnel.controller.broker_heartbeats import renew_session
from runnel.controller.broker_sessions import BrokerSessions
from runnel.messages import alter_partition as alter
from runnel.messages import assign_replicas_to_dirs as assign
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest
from runnel.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from runnel.model.errors import ErrorCode
from runnel.schemas.metadata import PartitionChangeRecord
from tests.controller.cluster_commands import ClusterCommands


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterCommands:
    """Two brokers, 25 partitions of both that broker 1 leads, and steps of ten."""
    for module in (broker_changes, alter_partition, directories, elections):
        monkeypatch.setattr(module, "PARTITIONS_PER_STEP", 10)
    cluster = ClusterCommands()
    for broker in (1, 2):
        cluster.play(
            f"register {broker} dirs={broker}x+{broker}y".replace("1x+1y", "p+q").replace("2x+2y", "r+s")
        )
        cluster.play(f"beat {broker}")
    cluster.play(f"create t assign={','.join(f'{index}:1+2' for index in range(25))}")
    cluster.batches.clear()
    return cluster


def sizes(cluster: ClusterCommands) -> list[int]:
    return [len(batch) for batch in cluster.batches]


def test_a_broker_fails(cluster: ClusterCommands) -> None:
    cluster.play("beat 1 fence")
    assert sum(sizes(cluster)) == 25 + 1
    assert max(sizes(cluster)) <= 10
    assert {state.leader for state in cluster.image.topics["t"].partitions} == {2}


def test_a_topic_is_deleted_while_its_broker_fails(cluster: ClusterCommands) -> None:
    cluster.play("create u assign=0:1+2")
    cluster.between_steps = lambda: list(cluster.play("delete t")).clear()
    cluster.play("beat 1 fence")
    assert "t" not in cluster.image.topics
    assert cluster.image.brokers[1].is_fenced
    state = cluster.image.partition("u", 0)
    assert state is not None and state.leader == 2


def test_many_isrs_change(cluster: ClusterCommands) -> None:
    topic = cluster.image.topics["t"]
    states = [
        alter.PartitionData(index, 0, new_isr_with_epochs=[alter.BrokerState(1)], partition_epoch=0)
        for index in range(25)
    ]
    epoch = cluster.image.brokers[1].epoch
    # The last one comes twice.
    request = alter.AlterPartitionRequest(1, epoch, [alter.TopicData(topic.id, [*states, states[-1]])])
    steps = alter_partition.alter_partitions(cluster.image, cluster.settings, request, 3)
    _, response = cluster.steps(steps)
    assert [result.error_code for result in response.topics[0].partitions] == [
        *[0] * 25,
        ErrorCode.INVALID_UPDATE_VERSION.code,
    ]
    assert sum(sizes(cluster)) == 25 and max(sizes(cluster)) <= 10
    assert {state.isr for state in cluster.image.topics["t"].partitions} == {(1,)}


def test_many_directories_are_assigned(cluster: ClusterCommands) -> None:
    partitions = [assign.PartitionData(index) for index in range(25)]
    topics = [assign.TopicData(cluster.image.topics["t"].id, partitions)]
    request = assign.AssignReplicasToDirsRequest(
        1, cluster.image.brokers[1].epoch, [assign.DirectoryData(b"q" * 16, topics)]
    )
    steps = directories.assign_replicas_to_dirs(cluster.image, cluster.settings, request)
    cluster.steps(steps)
    assert sizes(cluster) == [10, 10, 5]
    assert {state.directories[0] for state in cluster.image.topics["t"].partitions} == {b"q" * 16}


def test_a_heartbeat_counts_when_it_arrives(cluster: ClusterCommands) -> None:
    """Though the controller is too busy to process it (KAFKA-14392)."""
    sessions = BrokerSessions(1500)
    broker = cluster.image.brokers[1]
    for now_ms in range(0, 2000, 250):
        sessions.heartbeat(broker, 0, now_ms)
    assert sessions.next_expiry_ms() == 1750 + 1500
    sessions.contacted(1, broker.epoch, 3000)
    assert sessions.expired(4000) is None
    # A heartbeat of an earlier incarnation does not count.
    sessions.contacted(1, broker.epoch - 1, 4000)
    assert sessions.expired(4500) == 1


def test_only_a_heartbeat_that_changes_nothing_is_answered_from_committed_metadata(
    cluster: ClusterCommands,
) -> None:
    committed = cluster.image.copy()
    broker = committed.brokers[1]

    def renewed(**wanted: Any) -> bool:
        sessions = BrokerSessions(1500)
        request = BrokerHeartbeatRequest(1, **{"broker_epoch": broker.epoch, **wanted})
        response = renew_session(committed, cluster.image, sessions, request, 0)
        assert sessions.is_live(1, 0) == (response is not None)
        return response is not None

    assert renewed()
    assert not renewed(broker_epoch=broker.epoch - 1)
    assert not renewed(want_fence=True)
    assert not renewed(want_shut_down=True)
    assert not renewed(offline_log_dirs=[bytes(16)])
    # It is fenced by a change that is not committed yet, or unfenced.
    cluster.play("beat 1 fence")
    assert not renewed()
    committed = cluster.image.copy()
    assert not renewed()
    cluster.play("beat 1")
    assert not renewed()
    committed = cluster.image.copy()
    assert renewed()


def test_a_contested_session_ends_unless_the_broker_is_heard(cluster: ClusterCommands) -> None:
    sessions = BrokerSessions(1500)
    broker = cluster.image.brokers[1]
    for now_ms in range(0, 2000, 250):
        sessions.heartbeat(broker, 0, now_ms)
    sessions.contested(1, 1800)
    assert sessions.is_live(1, 2299) and not sessions.is_live(1, 2300)
    sessions.heartbeat(broker, 0, 2000)
    assert sessions.is_live(1, 3499)
    # A new controller has not heard the broker yet.
    sessions.activated([broker], 5000, {})
    sessions.contested(1, 5000)
    assert sessions.is_live(1, 6499) and not sessions.is_live(1, 6500)


def test_a_lost_connection_of_a_broker_with_rare_heartbeats(cluster: ClusterCommands) -> None:
    """Such as one of Kafka: it connects again for its next heartbeat."""
    broker = cluster.image.brokers[1]
    for interval_ms, ends_ms in ((100, 5500), (250, 5500), (400, 5700), (2000, 7300)):
        sessions = BrokerSessions(1500)
        for now_ms in range(5000 - 5 * interval_ms, 5001, interval_ms):
            sessions.heartbeat(broker, 0, now_ms)
        sessions.connection_lost(1, 5200, 300)
        assert sessions.next_expiry_ms() == ends_ms


@pytest.mark.parametrize("is_all", [True, False])
def test_many_leaders_are_elected(cluster: ClusterCommands, is_all: bool) -> None:
    cluster.play("beat 1 fence")
    cluster.play("beat 1")
    states = cluster.image.topics["t"].partitions
    assert {state.leader for state in states} == {2}
    topic_id = cluster.image.topics["t"].id
    cluster.carry_out([PartitionChangeRecord(index, topic_id, isr=[1, 2]) for index in range(25)])
    cluster.batches.clear()
    wanted = None if is_all else [TopicPartitions("t", [*range(25)]), TopicPartitions("none", [])]
    request = ElectLeadersRequest(elections.PREFERRED, wanted)
    steps = elections.elect_leaders(cluster.image, cluster.settings, request)
    _, response = cluster.steps(steps)
    assert sizes(cluster) == [10, 10, 5]
    found = {
        each.topic: [(part.partition_id, part.error_code) for part in each.partition_result]
        for each in response.replica_election_results
    }
    expected: dict[str, list[tuple[int, int]]] = {"t": [(index, 0) for index in range(25)]}
    assert found == (expected if is_all else {**expected, "none": []})
    assert {state.leader for state in cluster.image.topics["t"].partitions} == {1}
