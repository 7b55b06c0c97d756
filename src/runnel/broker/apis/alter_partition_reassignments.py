"""AlterPartitionReassignments: move partitions to other brokers."""

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
    """A move to where the partition is already is done at once.

    v1 the number of copies may be held fast
    """
    return await ctx.broker.metadata.change(lambda image: decide_reassignments(image, request))
