"""AlterPartitionReassignments: start and cancel partition reassignments."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.reassignments import decide_reassignments
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, ctx: Context
) -> AlterPartitionReassignmentsResponse:
    """A reassignment to the current replicas completes immediately.

    v1 allow replication factor change
    """
    settings = ctx.broker.settings
    return await ctx.broker.metadata.change(lambda image: decide_reassignments(image, settings, request))
