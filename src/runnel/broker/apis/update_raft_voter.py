"""UpdateRaftVoter: a voter reports its listeners and the levels of kraft.version that it supports."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import settled
from runnel.broker.runtime.quorum_wire import endpoint_under
from runnel.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from runnel.model.errors import ApiError, ErrorCode, NotController
from runnel.raft.values import Endpoint, ReplicaKey, Reply
from runnel.raft.voters import Voter


@handles(UpdateRaftVoterRequest)
async def update_raft_voter(request: UpdateRaftVoterRequest, ctx: Context) -> UpdateRaftVoterResponse:
    """Change the voter set if the voter is not as it describes; remember it if voters are configured."""
    quorum = ctx.broker.quorum
    reply = quorum.core.leader_requested(request.current_leader_epoch)
    try:
        check_cluster(request.cluster_id, ctx)
        if reply.error is ErrorCode.NONE:
            await _update(request, ctx)
    except ApiError as error:
        reply = quorum.core.leader_requested(request.current_leader_epoch)
        reply.error = error.error
    except NotController:
        reply = quorum.core.leader_requested(request.current_leader_epoch)
        reply.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _respond(await settled(quorum.answer(reply)), ctx.listener)


async def _update(request: UpdateRaftVoterRequest, ctx: Context) -> None:
    quorum, feature = ctx.broker.quorum, request.kraft_version_feature
    voter = Voter(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners),
        (feature.min_supported_version, feature.max_supported_version),
    )
    await quorum.voter_changes.update(voter, quorum.membership.request_timeout_ms)


def _respond(reply: Reply, listener: str) -> UpdateRaftVoterResponse:
    endpoint = endpoint_under(reply, listener)
    host, port = ("", 0) if endpoint is None else (endpoint.host, endpoint.port)
    leader = CurrentLeader(reply.leader_id, reply.epoch, host, port)
    return UpdateRaftVoterResponse(error_code=reply.error.code, current_leader=leader)
