"""Metadata: brokers, topics and partition leaders.

v1 rack and controller · v2 cluster id · v4 may disable auto-creation · v5 offline replicas · v7
leader epoch · v8 allowed operations · v9 flexible · v10 topic ids · v12 lookup by topic id · v13
top-level error
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: uuid = field("10+")
    name: string | None = field(nullable="10+")


class MetadataRequest(Request, api=3, versions="0-13", flexible="9+"):
    # null for all; in v0 an empty list
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: boolean = field("4+", default=True)
    include_cluster_authorized_operations: boolean = field("8-10")
    include_topic_authorized_operations: boolean = field("8+")


class MetadataResponseBroker(Struct):
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = field("1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0  # -1 while there is none
    leader_epoch: int32 = field("7+", default=-1)
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    offline_replicas: list[int32] = field("5+")


class MetadataResponseTopic(Struct):
    error_code: int16 = 0
    name: string | None = field(nullable="12+")
    topic_id: uuid = field("10+")
    is_internal: boolean = field("1+")
    partitions: list[MetadataResponsePartition] = field()
    # bit field of authorized operations; the default if not requested
    topic_authorized_operations: int32 = field("8+", default=-0x80000000)


class MetadataResponse(Response, api=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int32 = field("3+")
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: string | None = field("2+", default=None)
    controller_id: int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic] = field()
    # bit field of authorized operations; the default if not requested
    cluster_authorized_operations: int32 = field("8-10", default=-0x80000000)
    error_code: int16 = field("13+")
