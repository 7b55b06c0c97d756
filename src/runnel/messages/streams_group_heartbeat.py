"""StreamsGroupHeartbeat: join, stay in and leave a streams group (KIP-1071)."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, int64, string, uint16


class KeyValue(Struct):
    key: string = ""
    value: string = ""


class TopicInfo(Struct):
    name: string = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[KeyValue] = field()


class Endpoint(Struct):
    host: string = ""
    port: uint16 = 0


class TaskOffset(Struct):
    subtopology_id: string = ""
    partition: int32 = 0
    offset: int64 = 0


class TaskIds(Struct):
    subtopology_id: string = ""
    partitions: list[int32] = field()


class CopartitionGroup(Struct):
    source_topics: list[int16] = field()
    source_topic_regex: list[int16] = field()
    repartition_source_topics: list[int16] = field()


class Subtopology(Struct):
    subtopology_id: string = ""
    source_topics: list[string] = field()
    source_topic_regex: list[string] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[string] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


class Topology(Struct):
    epoch: int32 = 0
    subtopologies: list[Subtopology] = field()


class StreamsGroupHeartbeatRequest(Request, api=88, versions="0", flexible="0+"):
    group_id: string = ""
    member_id: string = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = field(default=None)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    process_id: string | None = None
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] | None = field(default=None)
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: boolean = False


class Status(Struct):
    status_code: int8 = 0
    status_detail: string = ""


class TopicPartition(Struct):
    topic: string = ""
    partitions: list[int32] = field()


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field()
    active_partitions: list[TopicPartition] = field()
    standby_partitions: list[TopicPartition] = field()


class StreamsGroupHeartbeatResponse(Response, api=88, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    member_id: string = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag: int32 = 0
    task_offset_interval_ms: int32 = 0
    status: list[Status] | None = field()
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(default=None)
