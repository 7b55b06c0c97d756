"""DescribeGroups: classic groups, their members and assignments."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.coordinator.group.shard import GroupShard
from runnel.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from runnel.model.errors import ErrorCode

GROUP_OPERATIONS = 3400
"""All operations on a group, as a bit field of Kafka's AclOperation codes; `access.py` removes some."""


@handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, ctx: Context) -> MaybePromise[DescribeGroupsResponse]:
    """Describe groups.

    v1 throttle time · v3 authorized operations · v4 static members · v5 flexible ·
    v6 a missing group is an error
    """

    def refuse(group_id: str, error: ErrorCode) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, error_code=error.code)

    def describe(group_id: str) -> MaybePromise[DescribedGroup]:
        if ctx.is_response_full:
            return refuse(group_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        def described(shard: GroupShard) -> DescribedGroup:
            group = shard.describe(group_id, ctx.api_version)
            ctx.response_elements += 1 + len(group.members)
            return group

        return ctx.broker.groups.read(group_id, described, partial(refuse, group_id))

    def combine(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        for group in groups:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return gather(map(describe, request.groups), combine)
