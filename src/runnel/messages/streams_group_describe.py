"""StreamsGroupDescribe: streams groups with their topology and members (KIP-1071)."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string, uint16


class StreamsGroupDescribeRequest(Request, api=89, versions="0", flexible="0+"):
    group_ids: list[string] = field()
    include_authorized_operations: boolean = False


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


class Assignment(Struct):
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


class KeyValue(Struct):
    key: string = ""
    value: string = ""


class TopicInfo(Struct):
    name: string = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[KeyValue] = field()


class Subtopology(Struct):
    subtopology_id: string = ""
    source_topics: list[string] = field()
    repartition_sink_topics: list[string] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_source_topics: list[TopicInfo] = field()


class Topology(Struct):
    epoch: int32 = 0
    subtopologies: list[Subtopology] | None = field(default=None)


class Member(Struct):
    member_id: string = ""
    member_epoch: int32 = 0
    instance_id: string | None = None
    rack_id: string | None = None
    client_id: string = ""
    client_host: string = ""
    topology_epoch: int32 = 0
    process_id: string = ""
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] = field()
    task_offsets: list[TaskOffset] = field()
    task_end_offsets: list[TaskOffset] = field()
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    is_classic: boolean = False


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = None
    group_id: string = ""
    group_state: string = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    topology: Topology | None = field(default=None)
    members: list[Member] = field()
    authorized_operations: int32 = -0x80000000


class StreamsGroupDescribeResponse(Response, api=89, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field()
