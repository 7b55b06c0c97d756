"""DescribeGroups: classic groups, their members and assignments."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from runnel.model.errors import ErrorCode

GROUP_OPERATIONS = 3400
"""Operations allowed on a group without an authorizer, as a bit field of Kafka's AclOperation codes."""


@handles(DescribeGroupsRequest)
def describe_groups(request: DescribeGroupsRequest, ctx: Context) -> MaybePromise[DescribeGroupsResponse]:
    """Describe groups.

    v1 throttle time · v3 authorized operations · v4 static members · v5 flexible ·
    v6 a missing group is an error
    """

    def describe(group_id: str) -> MaybePromise[DescribedGroup]:
        return ctx.broker.groups.read(
            group_id,
            lambda shard: shard.describe(group_id, ctx.api_version),
            lambda error: DescribedGroup(group_id=group_id, error_code=error.code),
        )

    def combine(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        for group in groups:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return gather(map(describe, request.groups), combine)
