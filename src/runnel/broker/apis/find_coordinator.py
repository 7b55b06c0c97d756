"""FindCoordinator: the coordinator of a group or a transactional id."""

from typing import Any

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.shards import Shards
from runnel.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from runnel.model.errors import ApiError, ErrorCode

GROUP, TRANSACTION = 0, 1
_BATCHED_VERSION = 4
_NO_NODE = -1


@handles(FindCoordinatorRequest)
async def find_coordinator(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    """Find coordinators; their internal topic is created on first use.

    v1 key types, throttle time, error message · v3 flexible · v4 batched keys · v6 share groups
    """
    if ctx.api_version >= _BATCHED_VERSION:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[await _find(key, request.key_type, ctx) for key in keys])
    found = await _find(request.key, request.key_type, ctx)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key: str, key_type: int, ctx: Context) -> Coordinator:
    try:
        shards: Shards[Any]
        if key_type == GROUP:
            shards = ctx.broker.groups
        elif key_type == TRANSACTION:
            shards = ctx.broker.transactions
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unsupported coordinator key type {key_type}")
        await ctx.broker.auto_creation.ensure_internal(shards.topic)
        return _coordinator(key, shards, ctx)
    except ApiError as error:
        return Coordinator(key, _NO_NODE, "", _NO_NODE, error.code, str(error))


def _coordinator(key: str, shards: Shards[Any], ctx: Context) -> Coordinator:
    broker = ctx.broker
    leader = shards.leader_of(key)
    if leader == broker.node_id and not shards.is_isolated(key):
        own = broker.endpoint(ctx.listener)
        return Coordinator(key, leader, own.host, own.port, error_message="")
    registration = broker.metadata.image.brokers.get(leader)
    if leader != broker.node_id and registration is not None and not registration.is_fenced:
        for endpoint in registration.endpoints:
            if endpoint.name == ctx.listener:
                return Coordinator(key, leader, endpoint.host, endpoint.port, error_message="")
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key} is not available")
