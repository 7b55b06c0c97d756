"""RemoveRaftVoter: remove a voter from the metadata quorum."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, check_leader
from runnel.broker.runtime.context import Context
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from runnel.model.errors import ApiError
from runnel.raft.values import ReplicaKey


@handles(RemoveRaftVoterRequest)
async def remove_raft_voter(request: RemoveRaftVoterRequest, ctx: Context) -> RemoveRaftVoterResponse:
    """Remove a voter; a leader that is removed leads until that is committed."""
    try:
        check_cluster(request.cluster_id, ctx)
        quorum = check_leader(ctx)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        await quorum.voter_changes.remove(key, quorum.membership.request_timeout_ms)
    except ApiError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
    return RemoveRaftVoterResponse(error_message=None)
