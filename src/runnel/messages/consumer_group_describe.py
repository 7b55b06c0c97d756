"""ConsumerGroupDescribe: consumer groups with their members (KIP-848).

v1 kind of member
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string, uuid


class ConsumerGroupDescribeRequest(Request, api=69, versions="0-1", flexible="0+"):
    group_ids: list[string] = field()
    include_authorized_operations: boolean = False


class TopicPartitions(Struct):
    topic_id: uuid = field()
    topic_name: string = ""
    partitions: list[int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class Member(Struct):
    member_id: string = ""
    instance_id: string | None = None
    rack_id: string | None = None
    member_epoch: int32 = 0
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = field()
    subscribed_topic_regex: string | None = None
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: int8 = field("1+", default=-1)  # 0 classic, 1 consumer, -1 unknown


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = None
    group_id: string = ""
    group_state: string = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: string = ""
    members: list[Member] = field()
    # bit field of authorized operations; the default if not requested
    authorized_operations: int32 = -0x80000000


class ConsumerGroupDescribeResponse(Response, api=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = field()
