"""The lag of groups for `runnel group`: from their coordinators, or computed by Kafka's protocol.

A coordinator observes when records are appended, and knows verdict and forecast; it is asked on its admin
listener. Where there is none, as of Apache Kafka, the lag in seconds is the age of the timestamp of the first
unread record, which producers may have set to any time.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import walk_headers
from runnel.client.admin_listener import find_if_known, read_json
from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import ClusterAdmin
from runnel.client.errors import BrokerError, ClientError, check
from runnel.client.groups import Groups
from runnel.client.offsets import READ_COMMITTED, end_offsets
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.observe.lag.first_unread import FirstUnread, first_unread

FETCH_BYTES = 64 * 1024
LOOKUPS_MAX = 200
"""First unread records that a command reads; others have no lag in seconds."""
FETCHES_MAX = 10
"""Fetches for one of them: the first records may be aborted."""
CONCURRENT_MAX = 8

PAGES_MAX = 100
PAGE_GROUPS = 1000

APPEND_TIME, RECORD_TIME = "append time", "record time"
NOT_READ = "the first unread record was not read"


async def lags_from_coordinator(
    cluster: Cluster, node_id: int, group_ids: Iterable[str] | None = None
) -> dict[str, dict[str, Any]] | None:
    """Groups as their coordinator reports them, all without their partitions; None if it cannot be asked."""
    address = await find_if_known(cluster, node_id)
    if address is None:
        return None
    query = {"group": list(group_ids)} if group_ids is not None else {"partitions": "0", "limit": PAGE_GROUPS}
    groups: dict[str, dict[str, Any]] = {}
    try:
        cluster_id, _ = await ClusterAdmin(cluster).describe()
    except ClientError:
        return None
    for _ in range(PAGES_MAX):
        answer = await read_json(address, f"/lag?{urlencode(query, doseq=True)}")
        # The address may be that of a broker on this host instead.
        if answer is None or (answer.get("cluster_id"), answer.get("node_id")) != (cluster_id, node_id):
            return None
        groups |= {group["group"]: group for group in answer["groups"]}
        if answer.get("after") is None:
            break
        query["after"] = answer["after"]
    return groups


async def lags_by_protocol(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Groups with their lag: commits first, then ends, then the first unread records."""
    slots = asyncio.Semaphore(CONCURRENT_MAX)

    async def committed(group_id: str) -> tuple[str, dict[TopicPartition, int]]:
        async with slots:
            commits = await Groups(cluster).committed(group_id)
        return group_id, {partition: commit.offset for partition, commit in commits.items()}

    commits = dict(await asyncio.gather(*map(committed, group_ids)))
    ends = await _ends(cluster, {partition for offsets in commits.values() for partition in offsets})
    unread = sorted(
        {
            (partition, offset)
            for offsets in commits.values()
            for partition, offset in offsets.items()
            if offset < ends.get(partition, -1)
        }
    )

    async def look_up(partition: TopicPartition, offset: int) -> FirstUnread | None:
        async with slots:
            return await _first_unread(cluster, partition, offset)

    read = unread[:LOOKUPS_MAX]
    found = dict(zip(read, await asyncio.gather(*(look_up(*each) for each in read)), strict=True))
    return {group_id: _group(offsets, ends, found) for group_id, offsets in commits.items()}


async def _ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    existing = [partition for partition in sorted(partitions) if await _exists(cluster, partition)]
    return await end_offsets(cluster, existing) if existing else {}


async def _exists(cluster: Cluster, partition: TopicPartition) -> bool:
    try:
        return await cluster.leader(partition) >= 0
    except BrokerError:
        return False


async def _first_unread(cluster: Cluster, partition: TopicPartition, offset: int) -> FirstUnread | None:
    """The first record that consumers with read_committed receive; None if it is not found."""
    try:
        for _ in range(FETCHES_MAX):
            data = await _fetch(cluster, partition, offset)
            records = memoryview(data.records or b"")
            batches = [records[at : at + header.size_bytes] for at, header in walk_headers(records)]
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
            found = first_unread(batches, offset, aborted)
            if found.timestamp_ms is not None or not batches:
                return found
            offset = found.offset
    except (ClientError, CorruptBatch):
        pass
    return None


async def _fetch(cluster: Cluster, partition: TopicPartition, offset: int) -> PartitionData:
    asked = FetchPartition(partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(partition.topic, partitions=[asked])],
    )
    response = await cluster.send_to_node(await cluster.leader(partition), request, FetchResponse)
    check(response.error_code, f"reading {partition}")
    data = response.responses[0].partitions[0]
    check(data.error_code, f"reading {partition}")
    return data


def _group(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    found: Mapping[tuple[TopicPartition, int], FirstUnread | None],
) -> dict[str, Any]:
    rows = [
        _partition(partition, offset, ends.get(partition), found.get((partition, offset)))
        for partition, offset in sorted(offsets.items())
    ]
    return {
        "lag": sum(row["lag"] or 0 for row in rows),
        "lag_seconds": max(
            (row["lag_seconds"] for row in rows if row["lag_seconds"] is not None), default=None
        ),
        "verdict": None,
        "forecast": None,
        "forecast_seconds": None,
        "partitions": rows,
    }


def _partition(
    partition: TopicPartition, offset: int, end: int | None, found: FirstUnread | None
) -> dict[str, Any]:
    seconds: float | None = None
    reason: str | None = None
    if end is None:
        reason = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    elif offset >= end or (found is not None and found.timestamp_ms is None):
        seconds = 0.0
    elif found is None or found.timestamp_ms is None or found.timestamp_ms < 0:
        reason = NOT_READ
    else:
        seconds = max(round(time.time() - found.timestamp_ms / 1000, 3), 0.0)
        reason = None if found.is_append_time else f"by {RECORD_TIME}"
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": offset,
        "end": end,
        "lag": None if end is None else max(end - offset, 0),
        "lag_seconds": seconds,
        "reason": reason,
    }


def lag_source(group: Mapping[str, Any]) -> str:
    """Which time of the first unread record the lag of a group in seconds is since."""
    largest = [row for row in group["partitions"] if row["lag_seconds"] == group["lag_seconds"]]
    is_by_record = any((row["reason"] or "").startswith(f"by {RECORD_TIME}") for row in largest)
    return RECORD_TIME if is_by_record else APPEND_TIME


def duration_text(seconds: float | None) -> str | None:
    """A duration in at most two units: 850 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return None
    if seconds < 1:
        return f"{round(seconds * 1000)} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for name, unit, smaller, size in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= unit:
            rest = whole % unit // size
            return f"{whole // unit} {name} {rest} {smaller}" if rest else f"{whole // unit} {name}"
    raise AssertionError(whole)


def forecast_text(view: Mapping[str, Any]) -> str | None:
    """When a group has caught up."""
    words = {"never": "never at this pace", "caught up": "yes", "unknown": None, None: None}
    if view["forecast"] in words:
        return words[view["forecast"]]
    return f"in {duration_text(view['forecast_seconds'])}"
