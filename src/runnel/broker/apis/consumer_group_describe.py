"""ConsumerGroupDescribe: consumer groups with epochs, members, current and target assignments."""

from runnel.broker.apis.describe_groups import GROUP_OPERATIONS
from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.coordinator.group.shard import GroupShard
from runnel.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from runnel.model.errors import ErrorCode


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, ctx: Context
) -> MaybePromise[ConsumerGroupDescribeResponse]:
    """Describe consumer groups; classic groups return GROUP_ID_NOT_FOUND.

    v1 member type
    """

    def describe(group_id: str) -> MaybePromise[DescribedGroup]:
        if not group_id:
            return DescribedGroup(ErrorCode.INVALID_GROUP_ID.code)
        if ctx.is_response_full:
            return DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code, group_id=group_id)

        def described(shard: GroupShard) -> DescribedGroup:
            group = shard.describe_consumer_group(group_id)
            ctx.response_elements += 1 + sum(map(_weight, group.members))
            return group

        return ctx.broker.groups.read(
            group_id, described, lambda error: DescribedGroup(error.code, group_id=group_id)
        )

    def combine(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        for group in groups:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    return gather(map(describe, request.group_ids), combine)


def _weight(member: Member) -> int:
    topics = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    return 1 + len(member.subscribed_topic_names) + sum(1 + len(topic.partitions) for topic in topics)
