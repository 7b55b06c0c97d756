"""Version 2: produce binary and JSON records, and read metadata."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.responses import Response

from runnel.client.admin import Admin
from runnel.client.cluster import PartitionView, TopicView
from runnel.client.offsets import end_offsets, start_offsets
from runnel.gateway.http.counting import InRecords, check_count
from runnel.gateway.http.limits import BATCH_RECORDS_MAX
from runnel.gateway.http.models import Base64, Partition
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.publishing import publish_all
from runnel.gateway.http.records import OutgoingRecord, from_base64
from runnel.gateway.http.requests import NO_STORE, Call, unsupported
from runnel.gateway.http.topic_names import check_may_change
from runnel.model.configs import ResourceType
from runnel.model.ids import TopicPartition

MEDIA_TYPE = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
INVALID_JSON, INVALID_PAYLOAD, NO_PARTITION = 42203, 42206, 40402


class BinaryRecord(Struct):
    """A record of base64."""

    value: Base64 | None = None
    key: Base64 | None = None
    partition: Partition | None = None


class BinaryRecords(Struct):
    """Records of base64."""

    records: Annotated[list[BinaryRecord], Meta(min_length=1, max_length=BATCH_RECORDS_MAX)]


class JsonRecord(Struct):
    """A record of JSON, which is stored as its text, with the quotes of a text."""

    value: Raw | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    partition: Partition | None = None


class JsonRecords(Struct):
    """Records of JSON."""

    records: Annotated[list[JsonRecord], Meta(min_length=1, max_length=BATCH_RECORDS_MAX)]


class ProducedOffset(Struct):
    """Where a record was written, or why it was not."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class ProducedOffsets(Struct):
    """The outcome of each record."""

    offsets: list[ProducedOffset]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class Replica(Struct):
    """A replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class PartitionV2(Struct):
    """A partition."""

    partition: int
    leader: int
    replicas: list[Replica]


class TopicV2(Struct):
    """A topic, its settings and its partitions."""

    name: str
    configs: dict[str, str | None]
    partitions: list[PartitionV2]


class OffsetsV2(Struct):
    """The first and the next offset of a partition."""

    beginning_offset: int
    end_offset: int


class BrokersV2(Struct):
    """The ids of all brokers."""

    brokers: list[int]


def _answer(content: Struct | list[PartitionV2]) -> Response:
    return Response(msgspec.json.encode(content), 200, NO_STORE, MEDIA_TYPE)


def path_partition(call: Call, view: TopicView) -> int:
    """The partition of the path; Confluent's error if there is none."""
    text = str(call.request.path_params["partition"])
    if not text.isdecimal() or len(text) > 10 or int(text) >= len(view.partitions):
        raise Problem(404, "the partition does not exist", code=NO_PARTITION)
    return int(text)


async def produce(call: Call) -> Response:
    """Write records to a topic, or to the partition of the path."""
    view = await call.topic_view()
    check_may_change(view)
    records = await _records(call)
    if "partition" in call.request.path_params:
        number = path_partition(call, view)
        for record in records:
            record.partition = number
    outcomes = await publish_all(call.principal, view, records)
    offsets = [
        ProducedOffset(each.partition, each.offset)
        if each.error is None
        else ProducedOffset(None, None, each.error.status, each.error.detail)
        for each in outcomes
    ]
    return _answer(ProducedOffsets(offsets))


async def _records(call: Call) -> list[OutgoingRecord]:
    kind = call.media_type
    if kind not in call.operation.body:
        raise unsupported(call.operation, kind)
    body = await call.body()
    try:
        check_count(body, InRecords, lambda data, kind: msgspec.json.decode(data, type=kind))
        if kind == BINARY:
            binary = msgspec.json.decode(body, type=BinaryRecords).records
            return [OutgoingRecord(_decoded(r.key), _decoded(r.value), [], r.partition) for r in binary]
        plain = msgspec.json.decode(body, type=JsonRecords).records
        return [OutgoingRecord(_text(r.key), _text(r.value), [], r.partition) for r in plain]
    except msgspec.ValidationError as error:
        raise Problem(422, f"the body is not valid: {error}", code=INVALID_PAYLOAD) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, f"the body is not JSON: {error}", code=INVALID_JSON) from None


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else from_base64(text, code=INVALID_PAYLOAD)


def _text(raw: Raw | UnsetType) -> bytes | None:
    return None if isinstance(raw, UnsetType) or bytes(raw) == b"null" else bytes(raw)


async def topic(call: Call, view: TopicView) -> Response:
    """A topic."""
    settings = await Admin(call.cluster).settings(ResourceType.TOPIC, view.name)
    configs = {setting.name: setting.value for setting in settings if not setting.is_sensitive}
    return _answer(TopicV2(view.name, configs, [_partition(each) for each in view.partitions]))


async def partitions(call: Call) -> Response:
    """The partitions of a topic."""
    view = await call.topic_view()
    return _answer([_partition(each) for each in view.partitions])


async def partition(call: Call) -> Response:
    """A partition of a topic."""
    view = await call.topic_view()
    return _answer(_partition(view.partitions[path_partition(call, view)]))


async def offsets(call: Call) -> Response:
    """The offsets of a partition."""
    view = await call.topic_view()
    where = TopicPartition(view.name, path_partition(call, view))
    starts = await start_offsets(call.cluster, [where])
    ends = await end_offsets(call.cluster, [where])
    return _answer(OffsetsV2(starts[where], ends[where]))


async def brokers(call: Call) -> Response:
    """The ids of all brokers."""
    await call.cluster.retry(lambda: call.cluster.refresh([]))
    return _answer(BrokersV2(sorted(call.cluster.nodes)))


def _partition(view: PartitionView) -> PartitionV2:
    replicas = [Replica(node, node == view.leader, node in view.in_sync) for node in view.replicas]
    return PartitionV2(view.partition, view.leader, replicas)
