"""AssignReplicasToDirs: a broker reports in which directories its replicas are."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.directories import assign_replicas_to_dirs as assign
from runnel.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)


@handles(AssignReplicasToDirsRequest)
async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, ctx: Context
) -> AssignReplicasToDirsResponse:
    """Record the directory of each replica."""
    settings = ctx.broker.settings
    return await ctx.broker.metadata.change_in_steps(lambda image: assign(image, settings, request))
