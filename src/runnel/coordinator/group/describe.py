"""Looking at groups: DescribeGroups and ListGroups."""

from collections.abc import Collection

from runnel.coordinator.group.group import Group, GroupState
from runnel.messages.describe_groups import DescribedGroup, DescribedGroupMember
from runnel.messages.list_groups import ListedGroup
from runnel.model.errors import ErrorCode

_NOT_FOUND_FROM = 6
_TYPE = "classic"


def describe(groups: dict[str, Group], group_id: str, api_version: int) -> DescribedGroup:
    """A group and its members; one that is not there is Dead, which is an error since version 6."""
    group = groups.get(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= _NOT_FOUND_FROM:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND.code
            missing.error_message = f"Group {group_id} not found."
        return missing
    is_stable = group.state is GroupState.STABLE
    members = [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "" if is_stable else "",
        members=members,
    )


def list_groups(
    groups: dict[str, Group], states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """All groups in one of these states and of one of these types; no names mean any."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    if wanted_types and _TYPE not in wanted_types:
        return []
    return [
        ListedGroup(
            group_id=group.id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_TYPE,
        )
        for group in groups.values()
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
