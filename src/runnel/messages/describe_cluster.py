"""DescribeCluster: the brokers or controllers of the cluster.

v1 kind of endpoints · v2 fenced brokers
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class DescribeClusterRequest(Request, api=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: boolean = False
    endpoint_type: int8 = field("1+", default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: boolean = field("2+")


class DescribeClusterBroker(Struct):
    broker_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = None
    is_fenced: boolean = field("2+")


class DescribeClusterResponse(Response, api=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: string = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = field()
    # bit field of authorized operations; the default if not requested
    cluster_authorized_operations: int32 = -0x80000000
