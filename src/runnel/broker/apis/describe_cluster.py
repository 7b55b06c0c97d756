"""DescribeCluster: the cluster's id, its brokers and its controller."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.metadata import CLUSTER_OPERATIONS
from runnel.broker.runtime.context import Context
from runnel.controller.values import BrokerRegistration
from runnel.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from runnel.model.errors import ApiError, ErrorCode

BROKERS, CONTROLLERS = 1, 2


@handles(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, ctx: Context) -> DescribeClusterResponse:
    """Describe the cluster's brokers, or its controllers if one is asked on its own listener.

    v1 endpoint type · v2 fenced brokers
    """
    is_controller = ctx.listener in ctx.broker.controller_listeners
    served = CONTROLLERS if is_controller else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
    if request.endpoint_type != served:
        kind = "CONTROLLER" if is_controller else "BROKER"
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"The request was sent to an endpoint of type {kind}"
        )
    if is_controller:
        return _controllers(ctx)
    brokers = [
        _broker(registration, ctx)
        for _, registration in sorted(ctx.broker.metadata.image.brokers.items())
        if request.include_fenced_brokers or not registration.is_fenced
    ]
    response = DescribeClusterResponse(
        cluster_id=ctx.broker.cluster_id, controller_id=ctx.broker.node_id, brokers=brokers
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _controllers(ctx: Context) -> DescribeClusterResponse:
    registered = [
        DescribeClusterBroker(controller.id, endpoint.host, endpoint.port)
        for _, controller in sorted(ctx.broker.metadata.image.controllers.items())
        for endpoint in controller.endpoints
        if endpoint.name == ctx.listener
    ]
    broker = ctx.broker
    leader = (broker.node_id,) if broker.controller.is_active else broker.metadata.controller_endpoint()
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=broker.cluster_id,
        controller_id=-1 if leader is None else leader[0],
        brokers=registered,
    )


def _broker(registration: BrokerRegistration, ctx: Context) -> DescribeClusterBroker:
    # Return the endpoint of the listener that the client connected to.
    endpoints = {endpoint.name: endpoint for endpoint in registration.endpoints}
    endpoint = endpoints.get(ctx.listener) or registration.endpoints[0]
    return DescribeClusterBroker(
        registration.id, endpoint.host, endpoint.port, registration.rack, registration.is_fenced
    )
