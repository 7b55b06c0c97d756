"""The records of `__consumer_offsets`: committed offsets, classic groups and consumer groups (KIP-848)."""

from __future__ import annotations

from runnel.schemas.coordinator import record_types
from runnel.wire import Data, Struct, bytes_, field, int8, int32, int64, string, uuid


class LegacyOffsetCommitKey(Data, api=0, versions="0"):
    """The key of a committed offset, as written before Kafka 0.8.2."""

    group: string = ""
    topic: string = ""
    partition: int32 = 0


class LegacyOffsetCommitValue(Data, api=0, versions="0"):
    """A committed offset, as written before Kafka 0.8.2."""

    offset: int64 = 0
    metadata: string = ""
    commit_timestamp: int64 = 0


class OffsetCommitKey(Data, api=1, versions="0"):
    """The group and the partition of a committed offset."""

    group: string = ""
    topic: string = ""
    partition: int32 = 0


class OffsetCommitValue(Data, api=1, versions="0-4", flexible="4+"):
    """A committed offset.

    v1 has an expire timestamp · v3 adds the leader epoch · v4 is flexible and adds the topic id
    """

    offset: int64 = 0
    leader_epoch: int32 = field("3+", default=-1)
    metadata: string = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field("1", default=-1)  # replaced by the retention of empty groups
    topic_id: uuid = field("4+", tag=0)


class GroupMetadataKey(Data, api=2, versions="0"):
    """A classic group."""

    group: string = ""


class MemberMetadata(Struct):
    """One member of a classic group, with its subscription and assignment."""

    member_id: string = ""
    group_instance_id: string | None = field("3+", default=None)
    client_id: string = ""
    client_host: string = ""
    rebalance_timeout: int32 = field("1+", default=-1)  # milliseconds, like the session timeout
    session_timeout: int32 = 0
    subscription: bytes_ = field()
    assignment: bytes_ = field()


class GroupMetadataValue(Data, api=2, versions="0-4", flexible="4+"):
    """A classic group after a rebalance.

    v1 rebalance timeout · v2 timestamp of the current state · v3 static members · v4 flexible
    """

    protocol_type: string = ""
    generation: int32 = 0
    protocol: string | None = field()  # null while the group has none
    leader: string | None = field()
    current_state_timestamp: int64 = field("2+", default=-1)
    members: list[MemberMetadata] = field()


class ConsumerGroupMetadataKey(Data, api=3, versions="0"):
    """A consumer group."""

    group_id: string = ""


class ConsumerGroupMetadataValue(Data, api=3, versions="0", flexible="0+"):
    """The epoch of a consumer group, bumped by every change of members, subscriptions or topics."""

    epoch: int32 = 0
    metadata_hash: int64 = field(tag=0)  # of the subscribed topics; a change bumps the epoch


class ConsumerGroupPartitionMetadataKey(Data, api=4, versions="0"):
    """The topics of a consumer group; written by older releases only."""

    group_id: string = ""


class PartitionMetadata(Struct):
    """The racks of a partition's replicas."""

    partition: int32 = 0
    racks: list[string] = field()


class TopicMetadata(Struct):
    """A subscribed topic as the group last saw it."""

    topic_id: uuid = field()
    topic_name: string = ""
    num_partitions: int32 = 0
    partition_metadata: list[PartitionMetadata] = field()


class ConsumerGroupPartitionMetadataValue(Data, api=4, versions="0", flexible="0+"):
    """The topics of a consumer group; written by older releases only."""

    topics: list[TopicMetadata] = field()


class ConsumerGroupMemberMetadataKey(Data, api=5, versions="0"):
    """A member of a consumer group."""

    group_id: string = ""
    member_id: string = ""


class ClassicProtocol(Struct):
    """An assignor that a classic client offers, with its opaque metadata."""

    name: string = ""
    metadata: bytes_ = field()


class ClassicMemberMetadata(Struct):
    """Metadata of a member of a consumer group that uses the classic protocol."""

    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = field()


class ConsumerGroupMemberMetadataValue(Data, api=5, versions="0", flexible="0+"):
    """The metadata and subscription of a member."""

    instance_id: string | None = field()
    rack_id: string | None = field()
    client_id: string = ""
    client_host: string = ""
    subscribed_topic_names: list[string] = field()
    subscribed_topic_regex: string | None = field()
    rebalance_timeout_ms: int32 = -1
    server_assignor: string | None = field()
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default=None, tag=0, nullable="0+"
    )  # null for members of the consumer protocol


class ConsumerGroupTargetAssignmentMetadataKey(Data, api=6, versions="0"):
    """The target assignment of a consumer group."""

    group_id: string = ""


class ConsumerGroupTargetAssignmentMetadataValue(Data, api=6, versions="0", flexible="0+"):
    """The group epoch for which the target assignment was computed."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Data, api=7, versions="0"):
    """One member in the target assignment."""

    group_id: string = ""
    member_id: string = ""


class TopicPartition(Struct):
    """Partitions of one topic, by topic id."""

    topic_id: uuid = field()
    partitions: list[int32] = field()


class ConsumerGroupTargetAssignmentMemberValue(Data, api=7, versions="0", flexible="0+"):
    """The target assignment of one member."""

    topic_partitions: list[TopicPartition] = field()


class ConsumerGroupCurrentMemberAssignmentKey(Data, api=8, versions="0"):
    """One member in the current assignment."""

    group_id: string = ""
    member_id: string = ""


class TopicPartitions(Struct):
    """Partitions of one topic, by topic id, with their assignment epochs."""

    topic_id: uuid = field()
    partitions: list[int32] = field()
    assignment_epochs: list[int32] | None = field(default=None, tag=0)  # one per partition


class ConsumerGroupCurrentMemberAssignmentValue(Data, api=8, versions="0", flexible="0+"):
    """The current assignment of one member, and the partitions pending revocation."""

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()


class ConsumerGroupRegularExpressionKey(Data, api=16, versions="0"):
    """A regular expression that members of a group are subscribed to."""

    group_id: string = ""
    regular_expression: string = ""


class ConsumerGroupRegularExpressionValue(Data, api=16, versions="0", flexible="0+"):
    """The topics that a regular expression matched."""

    topics: list[string] = field()
    version: int64 = 0  # of the metadata it was matched against
    timestamp: int64 = 0


GROUP_RECORDS = record_types(
    (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    (OffsetCommitKey, OffsetCommitValue),
    (GroupMetadataKey, GroupMetadataValue),
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
"""For `runnel.schemas.coordinator.read_record`."""
