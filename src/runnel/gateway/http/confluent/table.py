"""The operations of Confluent's REST proxy."""

from typing import Any

from runnel.gateway.http import topics
from runnel.gateway.http.confluent import v2, v3
from runnel.gateway.http.operations import JSON, Answer, Handler, Operation, Role

_RESOURCE = dict[str, Any]
_CLUSTER = "/v3/clusters/{cluster}"
_TOPIC = f"{_CLUSTER}/topics/{{topic}}"
_GROUP = f"{_CLUSTER}/consumer-groups/{{group}}"


def _read(
    path: str, name: str, summary: str, handler: Handler, content: Any = _RESOURCE, media: str = JSON
) -> Operation:
    answers = {200: Answer(summary, {media: content})}
    return Operation("GET", path, name, summary, handler, answers, tag="confluent", is_confluent=True)


def _write(
    method: str,
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    answers: dict[int, Answer],
    body: dict[str, Any] | None = None,
    role: Role = Role.EGRESS,
) -> Operation:
    return Operation(
        method,
        path,
        name,
        summary,
        handler,
        answers,
        role=role,
        tag="confluent",
        body=body or {},
        errors=(409, 422, 504) if role is Role.INGRESS else (409, 422),
        changes=True,
        is_confluent=True,
    )


_PRODUCED = {200: Answer("The outcome of each record.", {v2.MEDIA_TYPE: v2.ProducedOffsets})}
_PRODUCE_BODY = {v2.BINARY: v2.BinaryRecords, v2.JSON: v2.JsonRecords}
_DONE = {204: Answer("It is done.")}

CONFLUENT = (
    _write(
        "POST",
        "/topics/{topic}",
        "v2Produce",
        "Write records",
        v2.produce,
        _PRODUCED,
        _PRODUCE_BODY,
        Role.INGRESS,
    ),
    _write(
        "POST",
        "/topics/{topic}/partitions/{partition}",
        "v2ProduceToPartition",
        "Write records to a partition",
        v2.produce,
        _PRODUCED,
        _PRODUCE_BODY,
        Role.INGRESS,
    ),
    _read(
        "/topics/{topic}/partitions",
        "v2Partitions",
        "The partitions of a topic",
        v2.partitions,
        list[v2.PartitionV2],
        v2.MEDIA_TYPE,
    ),
    _read(
        "/topics/{topic}/partitions/{partition}",
        "v2Partition",
        "A partition",
        v2.partition,
        v2.PartitionV2,
        v2.MEDIA_TYPE,
    ),
    _read(
        "/topics/{topic}/partitions/{partition}/offsets",
        "v2Offsets",
        "The offsets of a partition",
        v2.offsets,
        v2.OffsetsV2,
        v2.MEDIA_TYPE,
    ),
    _read("/brokers", "v2Brokers", "The ids of all brokers", v2.brokers, v2.BrokersV2, v2.MEDIA_TYPE),
    _read("/v3/clusters", "v3Clusters", "The cluster, as a list", v3.clusters),
    _read(_CLUSTER, "v3Cluster", "The cluster", v3.cluster),
    _read(f"{_CLUSTER}/topics", "v3Topics", "All topics", v3.topics),
    _write(
        "POST",
        f"{_CLUSTER}/topics",
        "v3CreateTopic",
        "Create a topic",
        v3.create_topic,
        {201: Answer("The topic.", {JSON: _RESOURCE})},
        {JSON: v3.NewTopicV3},
    ),
    _read(_TOPIC, "v3Topic", "A topic", v3.topic),
    _write("DELETE", _TOPIC, "v3DeleteTopic", "Delete a topic", topics.delete, _DONE),
    _read(f"{_TOPIC}/configs", "v3Configs", "The settings of a topic", v3.configs),
    _write(
        "POST",
        f"{_TOPIC}/configs:alter",
        "v3AlterConfigs",
        "Change settings of a topic",
        v3.alter_configs,
        _DONE,
        {JSON: v3.ConfigChanges},
    ),
    _read(f"{_TOPIC}/configs/{{setting}}", "v3Config", "A setting of a topic", v3.config),
    _write(
        "PUT",
        f"{_TOPIC}/configs/{{setting}}",
        "v3SetConfig",
        "Change a setting of a topic",
        v3.set_config,
        _DONE,
        {JSON: v3.ConfigValue},
    ),
    _write(
        "DELETE",
        f"{_TOPIC}/configs/{{setting}}",
        "v3ResetConfig",
        "Reset a setting of a topic",
        v3.reset_config,
        _DONE,
    ),
    _read(f"{_TOPIC}/partitions", "v3Partitions", "The partitions of a topic", v3.partitions),
    _read(f"{_TOPIC}/partitions/{{partition}}", "v3Partition", "A partition", v3.partition),
    _write(
        "POST",
        f"{_TOPIC}/records",
        "v3Records",
        "Write records, JSON objects one after the other",
        v3.records,
        {200: Answer("A report for each record.", {JSON: v3.ReportV3})},
        {JSON: v3.RecordV3},
        Role.INGRESS,
    ),
    _write(
        "POST",
        f"{_TOPIC}/records:batch",
        "v3RecordsBatch",
        "Write a batch of records",
        v3.records_batch,
        {207: Answer("What was written, and what was not.", {JSON: v3.ReportsV3})},
        {JSON: v3.EntriesV3},
        Role.INGRESS,
    ),
    _read(f"{_CLUSTER}/consumer-groups", "v3Groups", "All consumer groups", v3.consumer_groups),
    _read(_GROUP, "v3Group", "A consumer group", v3.consumer_group),
    _read(f"{_GROUP}/lags", "v3Lags", "The lag of a group in each partition", v3.lags),
    _read(f"{_GROUP}/lag-summary", "v3LagSummary", "The lag of a group", v3.lag_summary),
)
