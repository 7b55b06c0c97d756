"""DescribeTopicPartitions: topics with their partitions, paginated."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string, uuid


class TopicRequest(Struct):
    name: string = ""


class Cursor(Struct):
    topic_name: string = ""
    partition_index: int32 = 0


class DescribeTopicPartitionsRequest(Request, api=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field()  # empty for all
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = field(default=None)  # where the page begins


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = -1
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    eligible_leader_replicas: list[int32] | None = field(default=None)
    last_known_elr: list[int32] | None = field(default=None)
    offline_replicas: list[int32] = field()


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int16 = 0
    name: string | None = field()
    topic_id: uuid = field()
    is_internal: boolean = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    # bit field of authorized operations; the default if not requested
    topic_authorized_operations: int32 = -0x80000000


class DescribeTopicPartitionsResponse(Response, api=75, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(default=None)  # null on the last page
