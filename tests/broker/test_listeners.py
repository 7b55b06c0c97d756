"""Clients and brokers are served on other listeners than the requests between nodes and controllers."""

from typing import cast

import pytest

from runnel.broker.apis.handlers import APIS, BROKER_APIS, CONTROLLER_APIS
from runnel.broker.runtime.pipeline import Pipeline
from runnel.controller.values import ControllerRegistration, Endpoint
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.messages.registry import api
from runnel.ports.service import CloseConnection, Session
from runnel.wire import Request, decode
from runnel.wire.frame import request_frame
from tests.wire.samples import example

VERSION = 4


def frame_of(request: Request, version: int) -> memoryview:
    return memoryview(bytearray(b"".join(request_frame(request, version, 1, "client"))[4:]))


@pytest.mark.parametrize(
    ("listener", "served"), [("PLAINTEXT", BROKER_APIS), ("CONTROLLER", CONTROLLER_APIS)]
)
def test_each_listener_serves_its_own_apis(tell, listener, served):
    async def scenario(world) -> None:
        world.broker.controller_listeners = frozenset({"CONTROLLER"})
        pipeline, session = Pipeline(world.broker), Session("host", 1, listener, 1)
        reply = pipeline.serve_frame(frame_of(ApiVersionsRequest("test", "1"), VERSION), session)
        assert reply is not None
        answer = b"".join(cast("list[bytes]", reply.parts))
        response = decode(ApiVersionsResponse, VERSION, memoryview(answer), 8)
        assert {row.api_key for row in response.api_keys} == served
        for api_key in APIS.keys() - served:
            version = APIS[api_key].version_max
            with pytest.raises(CloseConnection, match="no API with key"):
                pipeline.serve_frame(
                    frame_of(example(api(api_key).request, version, "full"), version), session
                )
        pipeline.finish_turn()

    tell(scenario)


@pytest.mark.parametrize(
    ("listener", "endpoint_type", "error"),
    [("PLAINTEXT", 1, 0), ("PLAINTEXT", 2, 114), ("CONTROLLER", 2, 0), ("CONTROLLER", 1, 114)],
)
def test_each_listener_describes_its_own_kind_of_nodes(tell, listener, endpoint_type, error):
    async def scenario(world) -> None:
        world.broker.controller_listeners = frozenset({"CONTROLLER"})
        world.broker.metadata.image.controllers[7] = ControllerRegistration(
            7, bytes(16), (Endpoint("CONTROLLER", "c", 9093), Endpoint("OTHER", "o", 1)), ()
        )
        pipeline, session = Pipeline(world.broker), Session("host", 1, listener, 1)
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        reply = pipeline.serve_frame(frame_of(request, 2), session)
        assert reply is not None
        answer = b"".join(cast("list[bytes]", reply.parts))
        response = decode(DescribeClusterResponse, 2, memoryview(answer), 9)
        assert response.error_code == error
        if error == 0:
            nodes = {1: "127.0.0.1"} if listener == "PLAINTEXT" else {7: "c"}
            assert {node.broker_id: node.host for node in response.brokers} == nodes
            assert (response.cluster_id, response.controller_id) == (world.broker.cluster_id, 1)
        pipeline.finish_turn()

    tell(scenario)
