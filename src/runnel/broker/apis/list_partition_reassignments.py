"""ListPartitionReassignments: reassignments in progress."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.reassignments import list_reassignments
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, ctx: Context
) -> ListPartitionReassignmentsResponse:
    """List reassignments of all topics or of the requested ones."""
    return list_reassignments(ctx.broker.metadata.image, request)
