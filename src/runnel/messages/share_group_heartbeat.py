"""ShareGroupHeartbeat: join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uuid


class ShareGroupHeartbeatRequest(Request, api=76, versions="1", flexible="0+"):
    group_id: string = ""
    member_id: string = ""
    member_epoch: int32 = 0  # 0 joins, -1 leaves
    rack_id: string | None = None
    subscribed_topic_names: list[string] | None = field(default=None)  # null if unchanged


class TopicPartitions(Struct):
    topic_id: uuid = field()
    partitions: list[int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class ShareGroupHeartbeatResponse(Response, api=76, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = field(default=None)  # null if unchanged
