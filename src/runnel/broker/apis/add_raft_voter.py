"""AddRaftVoter: add a voter to the metadata quorum."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, check_leader
from runnel.broker.runtime.context import Context
from runnel.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from runnel.model.errors import ApiError
from runnel.raft.values import Endpoint, ReplicaKey
from runnel.raft.voters import Voter


@handles(AddRaftVoterRequest)
async def add_raft_voter(request: AddRaftVoterRequest, ctx: Context) -> AddRaftVoterResponse:
    """Add a controller that has caught up as an observer.

    v1 the response need not wait for the commit
    """
    try:
        check_cluster(request.cluster_id, ctx)
        quorum = check_leader(ctx)
        voter = Voter(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners),
        )
        waits = request.ack_when_committed
        await quorum.voter_changes.add(voter, max(request.timeout_ms, 0), waits=waits)
    except ApiError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=str(error))
    return AddRaftVoterResponse(error_message=None)
