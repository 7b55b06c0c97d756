"""ListGroups: groups coordinated by this broker."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from runnel.model.errors import ErrorCode

NAME_CHARACTERS_MAX = 64
"""No state or type has a longer name, with blanks around it."""


@handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, ctx: Context) -> MaybePromise[ListGroupsResponse]:
    """List groups, optionally filtered by state and type.

    v1 throttle time · v3 flexible · v4 states · v5 types
    """

    states, types = _names(request.states_filter), _names(request.types_filter)

    def refuse(error: ErrorCode) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=error.code)

    def list_of(driver: GroupDriver) -> MaybePromise[ListGroupsResponse]:
        groups = driver.shard.list_groups(states, types)
        return driver.hold(ListGroupsResponse(groups=groups), refuse)

    def combine(parts: list[ListGroupsResponse]) -> ListGroupsResponse:
        refused = next((part for part in parts if part.error_code), None)
        return refused or ListGroupsResponse(groups=[group for part in parts for group in part.groups])

    return gather(map(list_of, ctx.broker.groups.all_loaded()), combine)


def _names(texts: list[str]) -> set[str]:
    """The states or types of a filter. Those that no group has need not be read: one represents all."""
    return {text.strip().lower() if len(text) <= NAME_CHARACTERS_MAX else "" for text in texts}
