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
    """Describe the cluster's brokers.

    v1 endpoint type; controller endpoints do not exist here · v2 fenced brokers
    """
    if request.endpoint_type == CONTROLLERS:
        raise ApiError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER"
        )
    if request.endpoint_type != BROKERS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        )
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


def _broker(registration: BrokerRegistration, ctx: Context) -> DescribeClusterBroker:
    # Return the endpoint of the listener that the client connected to.
    endpoints = {endpoint.name: endpoint for endpoint in registration.endpoints}
    endpoint = endpoints.get(ctx.listener) or registration.endpoints[0]
    return DescribeClusterBroker(
        registration.id, endpoint.host, endpoint.port, registration.rack, registration.is_fenced
    )
