"""AlterPartition: the leader of partitions proposes new in-sync replicas.

v2 topic ids · v3 the epochs of the brokers in the ISR (KIP-903)
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int32 = 0
    broker_epoch: int64 = -1  # -1 if the leader does not know it


class PartitionData(Struct):
    partition_index: int32 = 0
    leader_epoch: int32 = 0
    new_isr: list[int32] = field("0-2")
    new_isr_with_epochs: list[BrokerState] = field("3+")
    leader_recovery_state: int8 = 0  # 1 while the leader recovers after an unclean election
    partition_epoch: int32 = 0


class TopicData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class AlterPartitionRequest(Request, api=56, versions="2-3", flexible="0+"):
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[TopicData] = field()


class PartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    isr: list[int32] = field()
    leader_recovery_state: int8 = 0
    partition_epoch: int32 = 0


class TopicResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class AlterPartitionResponse(Response, api=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicResult] = field()
