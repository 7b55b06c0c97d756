"""DeleteGroups: delete inactive groups and their committed offsets."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, ctx: Context) -> MaybePromise[DeleteGroupsResponse]:
    """Delete groups.

    v1 throttle time · v2 flexible
    """

    def delete(group_id: str) -> MaybePromise[list[DeletableGroupResult]]:
        return ctx.broker.groups.write(
            group_id,
            lambda driver: driver.shard.delete_groups([group_id]),
            lambda error: [DeletableGroupResult(group_id, error.code)],
        )

    return gather(
        map(delete, request.groups_names),
        lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part]),
    )
