"""CreateTopics: create topics.

v4 broker defaults · v5 flexible, returns the configs · v7 topic ids
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int32 = 0
    broker_ids: list[int32] = field()


class CreatableTopicConfig(Struct):
    name: string = ""
    value: string | None = field()


class CreatableTopic(Struct):
    name: string = ""
    num_partitions: int32 = 0  # -1 for the default, or with assignments
    replication_factor: int16 = 0  # -1 for the default, or with assignments
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


class CreateTopicsRequest(Request, api=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field()
    timeout_ms: int32 = 60000
    validate_only: boolean = False


class CreatableTopicConfigs(Struct):
    name: string = ""
    value: string | None = field()
    read_only: boolean = False
    config_source: int8 = -1
    is_sensitive: boolean = False


class CreatableTopicResult(Struct):
    name: string = ""
    topic_id: uuid = field("7+")
    error_code: int16 = 0
    error_message: string | None = field()
    topic_config_error_code: int16 = field("5+", tag=0)  # why the settings are not shown
    num_partitions: int32 = field("5+", default=-1)
    replication_factor: int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+")


class CreateTopicsResponse(Response, api=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = field()
