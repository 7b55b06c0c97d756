"""The state machine of a member of a classic group."""

import pytest

from runnel.client.consumer_protocol import assignment_bytes, subscription_bytes
from runnel.client.errors import BrokerError
from runnel.client.membership import Membership, MembershipState
from runnel.messages.heartbeat import HeartbeatResponse
from runnel.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from runnel.messages.sync_group import SyncGroupResponse
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition


def member(instance_id: str | None = None) -> Membership:
    return Membership("g", ["orders"], session_timeout_ms=1, rebalance_timeout_ms=2, instance_id=instance_id)


def joined(membership: Membership, *, leader: str = "me", others: tuple[str, ...] = ()) -> None:
    members = [
        JoinGroupResponseMember(member_id=name, metadata=subscription_bytes(["orders"]))
        for name in ("me", *others)
    ]
    answer = JoinGroupResponse(
        generation_id=5, leader=leader, member_id="me", members=members if leader == "me" else []
    )
    membership.join()
    assert membership.joined(answer)


def stable(membership: Membership) -> Membership:
    joined(membership)
    membership.sync({"orders": 2})
    assignment = assignment_bytes([TopicPartition("orders", 1), TopicPartition("orders", 0)])
    assert membership.synced(SyncGroupResponse(assignment=assignment))
    return membership


def test_a_required_member_id_is_used_in_the_rejoin():
    membership = member()
    assert membership.join().member_id == ""
    assert not membership.joined(
        JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED.code, member_id="m-1")
    )
    assert membership.join().member_id == "m-1"


def test_the_leader_sends_all_assignments():
    membership = member()
    joined(membership, others=("other",))
    request = membership.sync({"orders": 3})
    assert {given.member_id for given in request.assignments} == {"me", "other"}
    assert request.generation_id == 5


def test_a_follower_sends_no_assignments():
    membership = member()
    joined(membership, leader="other")
    assert not membership.is_leader
    assert membership.sync({}).assignments == []


def test_partitions_are_assigned_once_synced():
    membership = stable(member())
    assert membership.state is MembershipState.STABLE
    assert membership.partitions == [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def test_the_generation_is_kept_until_the_rejoin():
    membership = stable(member())
    assert not membership.heartbeat_received(
        HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.code)
    )
    assert (membership.state, membership.generation_id) == (MembershipState.STABLE, 5)


@pytest.mark.parametrize(
    "error, member_id", [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_a_removed_member_rejoins(error, member_id):
    membership = stable(member())
    assert not membership.heartbeat_received(HeartbeatResponse(error_code=error.code))
    assert membership.state is MembershipState.UNJOINED
    assert membership.join().member_id == member_id


def test_a_fatal_join_error_is_raised():
    membership = member()
    membership.join()
    with pytest.raises(BrokerError, match="joining group g"):
        membership.joined(JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT.code))


def test_a_static_member_does_not_leave_on_close():
    assert stable(member()).leaves_on_close
    assert not stable(member(instance_id="one")).leaves_on_close
