"""ConsumerGroupHeartbeat: the one request by which a member of a consumer group lives (KIP-848).

v1 regular expressions, and the member makes its own id
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uuid


class TopicPartitions(Struct):
    topic_id: uuid = field()
    partitions: list[int32] = field()


class ConsumerGroupHeartbeatRequest(Request, api=68, versions="0-1", flexible="0+"):
    group_id: string = ""
    member_id: string = ""
    member_epoch: int32 = 0  # 0 joins, -1 leaves, -2 a static member leaves for a while
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1  # -1 if unchanged
    subscribed_topic_names: list[string] | None = field(default=None)  # null if unchanged
    subscribed_topic_regex: string | None = field("1+", default=None)
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = field(default=None)  # owned now; null if unchanged


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class ConsumerGroupHeartbeatResponse(Response, api=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = field(default=None)  # null if unchanged
