"""ElectLeaders: elect preferred leaders, or any leaders of partitions without one."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.elections import elect_leaders as elect
from runnel.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from runnel.model.errors import ApiError


@handles(ElectLeadersRequest)
async def elect_leaders(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    """ELECTION_NOT_NEEDED for partitions that the preferred replica already leads.

    v1 unclean elections, top-level error · v2 flexible
    """
    settings = ctx.broker.settings
    if request.topic_partitions is None:
        # The response may have very many.
        ctx.is_large = True
    try:
        return await ctx.broker.metadata.change_in_steps(lambda image: elect(image, settings, request))
    except ApiError as error:
        # Version 0 has no top-level error.
        return ElectLeadersResponse(
            error_code=error.code,
            replica_election_results=[
                ReplicaElectionResult(
                    requested.topic,
                    [PartitionResult(index, error.code, str(error)) for index in requested.partitions],
                )
                for requested in request.topic_partitions or ()
            ],
        )
