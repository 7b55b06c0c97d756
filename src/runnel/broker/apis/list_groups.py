"""ListGroups: all groups that this node coordinates."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.deferred import Deferred
from runnel.broker.runtime.shards import gather
from runnel.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from runnel.model.errors import ApiError, ErrorCode


@handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, ctx: Context) -> ListGroupsResponse | Deferred:
    """List groups, of some states and types if asked so.

    v1 throttle time · v3 flexible · v4 states · v5 types
    """

    def refuse(error: ErrorCode) -> ApiError:
        return ApiError(error, "a group's shard cannot answer")

    def combine(parts: list[list[ListedGroup] | ApiError]) -> ListGroupsResponse:
        groups: list[ListedGroup] = []
        for part in parts:
            if isinstance(part, ApiError):
                return ListGroupsResponse(error_code=part.code)
            groups += part
        return ListGroupsResponse(groups=groups)

    answer: ListGroupsResponse | Deferred = gather(
        [
            driver.hold(driver.shard.list_groups(request.states_filter, request.types_filter), refuse)
            for driver in ctx.broker.groups.all_loaded()
        ],
        combine,
    )
    return answer
