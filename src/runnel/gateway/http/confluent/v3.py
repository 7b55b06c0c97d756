"""Version 3: clusters, topics, configs, partitions, records, and the lag of consumer groups."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.responses import Response

from runnel.client.admin import BROKER_DEFAULT, Admin, Setting
from runnel.client.cluster import PartitionView, TopicView
from runnel.client.errors import BrokerError, ClientError
from runnel.client.groups import Groups, GroupView
from runnel.client.offsets import end_offsets
from runnel.gateway.http.confluent.v2 import INVALID_JSON, INVALID_PAYLOAD, path_partition
from runnel.gateway.http.counting import Element, InEntries, check_count
from runnel.gateway.http.limits import BATCH_RECORDS_MAX, POLL_MESSAGES_MAX
from runnel.gateway.http.models import Partition, PublishOutcome, TopicName
from runnel.gateway.http.operations import JSON
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.publishing import publish_all
from runnel.gateway.http.records import OutgoingRecord, check_batch, check_headers, from_base64
from runnel.gateway.http.requests import NO_STORE, Call, decode, unsupported
from runnel.gateway.http.responses import LineStream
from runnel.gateway.http.topic_names import check_may_change, check_no_system_topic, check_topic_name
from runnel.model.configs import AlterOperation, ConfigSource, ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

Resource = dict[str, Any]
_NOT_BLANK = re.compile(r"\S")
NO_CLUSTER, NO_GROUP = 404, 40403
TURN = 500
"""Resources of a list that are encoded before other requests have their turn."""

CONCATENATED_BYTES_MAX = 1024 * 1024
"""Records that are neither one object, nor one in each line: Python's parser takes 50 ms for a megabyte."""

_SOURCES = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
}


class ConfigV3(Struct):
    """A setting."""

    name: str
    value: str | None = None


class NewTopicV3(Struct):
    """A topic to create."""

    topic_name: TopicName
    partitions_count: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    configs: list[ConfigV3] = []


class ConfigValue(Struct):
    """The value of a setting."""

    value: str | None


class ConfigChange(Struct):
    """A setting to set, or to reset to its default (DELETE)."""

    name: str
    value: str | None = None
    operation: str | None = None


class ConfigChanges(Struct):
    """Settings to change, all or none."""

    data: Annotated[list[ConfigChange], Meta(max_length=1_000)]


class HeaderV3(Struct):
    """A header; the value is base64."""

    name: str
    value: str | None = None


class DataV3(Struct):
    """A key or a value: BINARY is base64, JSON is stored as its text, STRING without quotes."""

    type: str | None = None
    data: Raw | UnsetType = UNSET


class RecordV3(Struct):
    """A record."""

    partition_id: Partition | None = None
    headers: list[HeaderV3] = []
    key: DataV3 | None = None
    value: DataV3 | None = None
    timestamp: datetime | None = None


class EntryV3(RecordV3):
    """A record of a batch, with an id of the client."""

    id: str = ""


class EntriesV3(Struct):
    """Records of a batch."""

    entries: Annotated[list[EntryV3], Meta(min_length=1, max_length=BATCH_RECORDS_MAX)]


class ReportV3(Struct, omit_defaults=True):
    """What became of a record."""

    error_code: int
    message: str | None = None
    cluster_id: str | None = None
    topic_name: str | None = None
    partition_id: int | None = None
    offset: int | None = None
    id: str | None = None


class ReportsV3(Struct):
    """What became of the records of a batch."""

    successes: list[ReportV3]
    failures: list[ReportV3]


# Clusters.


async def _cluster_id(call: Call) -> str:
    """The id of the cluster; 404 if the path has another one."""
    if call.cluster.cluster_id is None:
        await call.cluster.retry(lambda: call.cluster.refresh([]))
    known = call.cluster.cluster_id or ""
    if call.request.path_params.get("cluster", known) != known:
        raise Problem(404, "the cluster does not exist", code=NO_CLUSTER)
    return known


async def _listed(call: Call, kind: str, data: Iterable[Resource]) -> Response:
    """A list; all of it is on one page, and is encoded in turns: there may be a hundred thousand topics."""
    encoded = []
    for number, resource in enumerate(data, 1):
        encoded.append(msgspec.json.encode(resource))
        if number % TURN == 0:
            await asyncio.sleep(0)
    metadata = {"self": str(call.request.url), "next": None}
    return call.answer(
        {"kind": f"Kafka{kind}List", "metadata": metadata, "data": Raw(b"[" + b",".join(encoded) + b"]")}
    )


def _resource(call: Call, kind: str, path: str, **fields: Any) -> Resource:
    url = f"{call.request.base_url}v3/clusters/{path}"
    metadata = {"self": url, "resource_name": f"crn:///kafka={path}"}
    return {"kind": f"Kafka{kind}", "metadata": metadata, **fields}


async def _cluster(call: Call) -> Resource:
    cluster_id = await _cluster_id(call)
    base = f"{call.request.base_url}v3/clusters/{cluster_id}"
    related = {
        name: {"related": f"{base}/{name.replace('_', '-')}"} for name in ("topics", "consumer_groups")
    }
    return _resource(call, "Cluster", cluster_id, cluster_id=cluster_id, **related)


async def clusters(call: Call) -> Response:
    """The cluster, as a list."""
    return await _listed(call, "Cluster", [await _cluster(call)])


async def cluster(call: Call) -> Response:
    """The cluster."""
    return call.answer(await _cluster(call))


# Topics.


def _topic(call: Call, cluster_id: str, view: TopicView) -> Resource:
    return _resource(
        call,
        "Topic",
        f"{cluster_id}/topics/{view.name}",
        cluster_id=cluster_id,
        topic_name=view.name,
        is_internal=view.is_internal,
        replication_factor=len(view.partitions[0].replicas) if view.partitions else 0,
        partitions_count=len(view.partitions),
    )


async def topics(call: Call) -> Response:
    """All topics."""
    cluster_id = await _cluster_id(call)
    return await _listed(
        call, "Topic", (_topic(call, cluster_id, view) for view in await call.principal.topics.get())
    )


async def topic(call: Call) -> Response:
    """A topic."""
    cluster_id = await _cluster_id(call)
    return call.answer(_topic(call, cluster_id, await call.topic_view()))


async def create_topic(call: Call) -> Response:
    """Create a topic."""
    cluster_id = await _cluster_id(call)
    given = await call.json(NewTopicV3)
    check_topic_name(given.topic_name)
    check_no_system_topic(given.topic_name)
    await Admin(call.cluster).create_topic(
        given.topic_name,
        partitions=given.partitions_count or BROKER_DEFAULT,
        replication_factor=given.replication_factor or BROKER_DEFAULT,
        settings={each.name: each.value or "" for each in given.configs},
    )
    view = await call.cluster.topic(given.topic_name)
    call.principal.topics.invalidate()
    return call.answer(_topic(call, cluster_id, view), 201)


# Configs.


def _config(call: Call, cluster_id: str, topic_name: str, setting: Setting) -> Resource:
    return _resource(
        call,
        "TopicConfig",
        f"{cluster_id}/topics/{topic_name}/configs/{setting.name}",
        cluster_id=cluster_id,
        topic_name=topic_name,
        name=setting.name,
        value=None if setting.is_sensitive else setting.value,
        is_default=setting.source is ConfigSource.DEFAULT,
        is_read_only=setting.is_read_only,
        is_sensitive=setting.is_sensitive,
        source=_SOURCES.get(setting.source, "UNKNOWN"),
        synonyms=[],
    )


async def configs(call: Call) -> Response:
    """The settings of a topic."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    settings = await Admin(call.cluster).settings(ResourceType.TOPIC, view.name)
    return await _listed(
        call, "TopicConfig", (_config(call, cluster_id, view.name, each) for each in settings)
    )


async def _setting(call: Call, view: TopicView) -> Setting:
    name = str(call.request.path_params["setting"])
    settings = await Admin(call.cluster).settings(ResourceType.TOPIC, view.name)
    for each in settings:
        if each.name == name:
            return each
    raise Problem(404, "the topic has no such setting")


async def config(call: Call) -> Response:
    """A setting of a topic."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    return call.answer(_config(call, cluster_id, view.name, await _setting(call, view)))


async def _alter(call: Call, changes: list[tuple[str, AlterOperation, str | None]]) -> Response:
    await _cluster_id(call)
    view = await call.topic_view()
    check_may_change(view)
    await Admin(call.cluster).alter_settings(ResourceType.TOPIC, view.name, changes)
    return Response(status_code=204, headers=NO_STORE)


async def set_config(call: Call) -> Response:
    """Change a setting."""
    given = await call.json(ConfigValue)
    name = (await _setting(call, await call.topic_view())).name
    return await _alter(call, [(name, AlterOperation.SET, given.value or "")])


async def reset_config(call: Call) -> Response:
    """Reset a setting to its default."""
    name = (await _setting(call, await call.topic_view())).name
    return await _alter(call, [(name, AlterOperation.DELETE, None)])


async def alter_configs(call: Call) -> Response:
    """Change several settings."""
    given = await call.json(ConfigChanges)
    changes: list[tuple[str, AlterOperation, str | None]] = []
    for each in given.data:
        if each.operation not in (None, "SET", "DELETE"):
            raise Problem(422, f"{each.operation!r} is neither SET nor DELETE")
        if each.operation == "DELETE":
            changes.append((each.name, AlterOperation.DELETE, None))
        else:
            changes.append((each.name, AlterOperation.SET, each.value or ""))
    return await _alter(call, changes)


# Partitions.


def _partition(call: Call, cluster_id: str, view: TopicView, partition: PartitionView) -> Resource:
    path = f"{cluster_id}/topics/{view.name}/partitions/{partition.partition}"
    return _resource(
        call,
        "Partition",
        path,
        cluster_id=cluster_id,
        topic_name=view.name,
        partition_id=partition.partition,
        leader={"related": f"{call.request.base_url}v3/clusters/{path}/replicas/{partition.leader}"},
    )


async def partitions(call: Call) -> Response:
    """The partitions of a topic."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    return await _listed(
        call, "Partition", (_partition(call, cluster_id, view, each) for each in view.partitions)
    )


async def partition(call: Call) -> Response:
    """A partition of a topic."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    found = view.partitions[path_partition(call, view)]
    return call.answer(_partition(call, cluster_id, view, found))


# Records.


async def records(call: Call) -> Response:
    """Write records: JSON objects, one after the other; a report for each."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    check_may_change(view)
    if call.media_type != JSON:
        raise Problem(415, f"the content type is not {JSON}")
    parsed = _parsed(await call.body())
    outcomes = await _write(call, view, parsed)
    if len(outcomes) == 1:
        report = _report(cluster_id, view, outcomes[0])
        status = 200 if outcomes[0].error is None else outcomes[0].error.status
        return call.answer(report, status)

    async def lines() -> AsyncGenerator[bytes]:
        for outcome in outcomes:
            yield msgspec.json.encode(_report(cluster_id, view, outcome)) + b"\r\n"

    response = LineStream(lines())
    response.headers["content-type"] = JSON
    return response


async def records_batch(call: Call) -> Response:
    """Write the records of a batch."""
    cluster_id, view = await _cluster_id(call), await call.topic_view()
    check_may_change(view)
    if call.media_type not in call.operation.body:
        raise unsupported(call.operation, call.media_type)
    body = await call.body()
    check_count(body, InEntries, decode)
    entries = decode(body, EntriesV3).entries
    outcomes = await _write(call, view, entries)
    reports = [
        msgspec.structs.replace(_report(cluster_id, view, outcome), id=entry.id)
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    good = [report for report in reports if report.error_code == 200]
    bad = [report for report in reports if report.error_code != 200]
    return call.answer(ReportsV3(good, bad), 207)


def _parsed(body: bytes) -> list[RecordV3]:
    """Objects that are written one after the other, with or without blanks between them."""
    try:
        try:
            return [msgspec.json.decode(body, type=RecordV3)]
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return _lines_of(body)
    except msgspec.ValidationError as error:
        raise Problem(422, f"the body is not valid: {error}") from None
    except msgspec.DecodeError:
        pass
    except (UnicodeDecodeError, RecursionError) as error:
        raise Problem(422, f"the body is not JSON: {error}", code=INVALID_JSON) from None
    if len(body) > CONCATENATED_BYTES_MAX:
        detail = f"more than {CONCATENATED_BYTES_MAX} bytes of records are not one JSON object in each line"
        raise Problem(422, detail, code=INVALID_JSON)
    parsed = list(islice(_objects(body), BATCH_RECORDS_MAX + 1))
    check_batch(parsed)
    return parsed


def _lines_of(body: bytes) -> list[RecordV3]:
    check_count(body, Element, lambda data, kind: msgspec.json.Decoder(kind).decode_lines(data))
    return msgspec.json.Decoder(RecordV3).decode_lines(body)


def _objects(body: bytes) -> Iterator[RecordV3]:
    """The same, by Python's parser, which makes objects of all that it passes."""
    try:
        text, decoder, position = body.decode(), json.JSONDecoder(), 0
        while (found := _NOT_BLANK.search(text, position)) is not None:
            _, position = decoder.raw_decode(text, found.start())
            yield decode(text[found.start() : position].encode(), RecordV3)
    except (ValueError, RecursionError) as error:
        raise Problem(422, f"the body is not JSON: {error}", code=INVALID_JSON) from None


async def _write(call: Call, view: TopicView, given: Iterable[RecordV3]) -> list[PublishOutcome]:
    return await publish_all(call.principal, view, [_outgoing(each) for each in given])


def _outgoing(record: RecordV3) -> OutgoingRecord:
    check_headers(record.headers)
    headers = [(each.name, None if each.value is None else _base64(each.value)) for each in record.headers]
    stamp = record.timestamp
    if stamp is not None and stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    ms = None if stamp is None else round(stamp.timestamp() * 1000)
    if ms is not None and ms < 0:
        raise Problem(422, "the timestamp is before 1970", code=INVALID_PAYLOAD)
    return OutgoingRecord(_data(record.key), _data(record.value), headers, record.partition_id, ms)


def _data(given: DataV3 | None) -> bytes | None:
    if given is None or isinstance(given.data, UnsetType) or bytes(given.data) == b"null":
        return None
    raw = bytes(given.data)
    if given.type == "JSON":
        return raw
    if given.type not in ("BINARY", "STRING"):
        raise Problem(422, "the type of data is BINARY, JSON or STRING", code=INVALID_PAYLOAD)
    if not raw.startswith(b'"'):
        raise Problem(422, f"data of type {given.type} is a text", code=INVALID_PAYLOAD)
    text = decode(raw, str)
    return text.encode() if given.type == "STRING" else _base64(text)


def _base64(text: str) -> bytes:
    return from_base64(text, code=INVALID_PAYLOAD)


def _report(cluster_id: str, view: TopicView, outcome: PublishOutcome) -> ReportV3:
    if outcome.error is not None:
        return ReportV3(outcome.error.status, outcome.error.detail)
    return ReportV3(200, None, cluster_id, view.name, outcome.partition, outcome.offset)


# Consumer groups.


async def _group(call: Call) -> GroupView:
    group_id = str(call.request.path_params["group"])
    try:
        return await Groups(call.cluster).describe(group_id)
    except BrokerError as error:
        if error.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise Problem(404, "the consumer group does not exist", code=NO_GROUP) from None


def _group_resource(call: Call, cluster_id: str, group_id: str, state: str, **more: Any) -> Resource:
    path = f"{cluster_id}/consumer-groups/{group_id}"
    related = {"related": f"{call.request.base_url}v3/clusters/{path}/lag-summary"}
    return _resource(
        call,
        "ConsumerGroup",
        path,
        cluster_id=cluster_id,
        consumer_group_id=group_id,
        is_simple=not more.get("partition_assignor"),
        state=state.upper().replace(" ", "_"),
        lag_summary=related,
        **more,
    )


async def consumer_groups(call: Call) -> Response:
    """All consumer groups."""
    cluster_id = await _cluster_id(call)
    found = (await Groups(call.cluster).list())[:POLL_MESSAGES_MAX]
    shown = (_group_resource(call, cluster_id, each.group_id, each.state) for each in found)
    return await _listed(call, "ConsumerGroup", shown)


async def consumer_group(call: Call) -> Response:
    """A consumer group."""
    cluster_id, group = await _cluster_id(call), await _group(call)
    shown = _group_resource(
        call, cluster_id, group.group_id, group.state, partition_assignor=group.assignor or ""
    )
    return call.answer(shown)


async def _lags(call: Call) -> list[Resource]:
    cluster_id, group = await _cluster_id(call), await _group(call)
    commits = await Groups(call.cluster).committed(group.group_id)
    ends = await _known_ends(call, list(commits))
    owners = {each: member for member in group.members for each in member.partitions}
    found = []
    for where, commit in sorted(commits.items()):
        if where not in ends:
            continue
        member = owners.get(where)
        path = (
            f"{cluster_id}/consumer-groups/{group.group_id}/lags/{where.topic}/partitions/{where.partition}"
        )
        found.append(
            _resource(
                call,
                "ConsumerLag",
                f"{path}/partitions/{where.partition}",
                cluster_id=cluster_id,
                consumer_group_id=group.group_id,
                topic_name=where.topic,
                partition_id=where.partition,
                consumer_id="" if member is None else member.member_id,
                instance_id=None if member is None else member.instance_id,
                client_id="" if member is None else member.client_id,
                current_offset=commit.offset,
                log_end_offset=ends[where],
                lag=max(ends[where] - commit.offset, 0),
            )
        )
    return found


async def _known_ends(call: Call, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets, without topics that were deleted since the group has read them."""
    names = {view.name: len(view.partitions) for view in await call.principal.topics.get()}
    known = [each for each in partitions if each.partition < names.get(each.topic, 0)]
    try:
        return await end_offsets(call.cluster, known) if known else {}
    except ClientError as error:
        raise Problem(503, str(error)) from None


async def lags(call: Call) -> Response:
    """The lag of a group in each partition."""
    return await _listed(call, "ConsumerLag", await _lags(call))


async def lag_summary(call: Call) -> Response:
    """The largest lag of a group, and the sum of all."""
    found = await _lags(call)
    cluster_id = await _cluster_id(call)
    group_id = str(call.request.path_params["group"])
    largest = max(found, key=lambda lag: lag["lag"], default=None)
    names = ("consumer_id", "client_id", "instance_id", "topic_name", "partition_id")
    more = {f"max_lag_{name}": None if largest is None else largest[name] for name in names}
    return call.answer(
        _resource(
            call,
            "ConsumerGroupLagSummary",
            f"{cluster_id}/consumer-groups/{group_id}/lag-summary",
            cluster_id=cluster_id,
            consumer_group_id=group_id,
            max_lag=0 if largest is None else largest["lag"],
            total_lag=sum(lag["lag"] for lag in found),
            **more,
        )
    )
