"""DescribeGroups, ConsumerGroupDescribe and ListGroups."""

from collections.abc import Collection

from runnel.coordinator.group.consumer.describe import (
    describe_consumer_group as consumer_group_description,
)
from runnel.coordinator.group.consumer.groups import ConsumerGroups
from runnel.coordinator.group.group import CONSUMER_PROTOCOL, Group, GroupState
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from runnel.messages.describe_groups import DescribedGroup, DescribedGroupMember
from runnel.messages.list_groups import ListedGroup
from runnel.model.errors import ApiError, ErrorCode

_NOT_FOUND_FROM = 6
_CLASSIC, _CONSUMER = "classic", "consumer"


def describe(
    groups: dict[str, Group], consumers: ConsumerGroups, group_id: str, api_version: int
) -> DescribedGroup:
    """Describe a classic group. An unknown group is Dead; since version 6 it is an error."""
    group = groups.get(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= _NOT_FOUND_FROM:
            reason = "is not a classic group" if group_id in consumers.by_id else "not found"
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND.code
            missing.error_message = f"Group {group_id} {reason}."
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
    groups: dict[str, Group], consumers: ConsumerGroups, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """The groups that match these states and types, in lower case; an empty filter matches all."""
    listed = [
        ListedGroup(group.id, group.protocol_type or "", group.state.value, _CLASSIC)
        for group in groups.values()
    ]
    listed += [
        ListedGroup(group.id, CONSUMER_PROTOCOL, group.state.value, _CONSUMER)
        for group in consumers.by_id.values()
    ]
    return [
        group
        for group in listed
        if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    ]


def summary(
    groups: dict[str, Group], consumers: ConsumerGroups, group_id: str
) -> tuple[str, str, int] | None:
    """State, type and number of members of a group; None if it does not exist."""
    consumer_group = consumers.by_id.get(group_id)
    if consumer_group is not None:
        return consumer_group.state.value, _CONSUMER, len(consumer_group.members)
    group = groups.get(group_id)
    return None if group is None else (group.state.value, _CLASSIC, len(group.members))


def describe_consumer_group(
    consumers: ConsumerGroups, settings: GroupSettings, group_id: str
) -> DescribedConsumerGroup:
    """Describe a consumer group; an unknown group and a classic one are errors."""
    try:
        group = consumers.get(group_id)
    except ApiError as error:
        return DescribedConsumerGroup(error.code, str(error), group_id)
    return consumer_group_description(group, consumers.cluster, settings.consumer_assignors[0])
