"""SyncGroup: distribute the assignment of a generation."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.coordinator.group.responses import sync_group_error
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(SyncGroupRequest)
def sync_group(request: SyncGroupRequest, ctx: Context) -> MaybePromise[SyncGroupResponse]:
    """Return a member's assignment; the response is sent when the leader's assignment is committed.

    v1 throttle time · v3 static members · v4 flexible · v5 protocol type and name
    """
    return ctx.broker.groups.write_or_park(
        request.group_id,
        ctx,
        lambda driver, caller: driver.shard.sync(request, caller, driver.now()),
        sync_group_error,
    )
