"""Responses to JoinGroup and SyncGroup."""

from runnel.coordinator.group.group import Group
from runnel.coordinator.group.member import Member
from runnel.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from runnel.messages.sync_group import SyncGroupResponse
from runnel.model.errors import ErrorCode


def join_group_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=member_id)


def join_group_response(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The generation of a member; for the leader with all members."""
    members = []
    if member_id == group.leader:
        members = [
            JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_group_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


def sync_group_response(group: Group, member: Member) -> SyncGroupResponse:
    """The assignment of a member."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
