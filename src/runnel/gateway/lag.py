"""The lag of consumer groups: in records by Kafka's protocol, in seconds from brokers that report it."""

import asyncio
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode

from runnel.client.admin_listener import Address, read
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError
from runnel.client.groups import Groups
from runnel.client.http_get import GetFailed
from runnel.client.offsets import end_offsets
from runnel.model.ids import TopicPartition

PAGE = 500
PAGES_MAX = 10
"""Pages of `/lag` that are read from one broker."""


class ReportedLag(NamedTuple):
    """The lag of a group in a partition as a broker reports it."""

    lag: int | None = None
    seconds: float | None = None
    reason: str | None = None
    """Why the seconds are unknown."""


@dataclass(frozen=True, slots=True)
class LagSummary:
    """The lag of a group as a broker reports it."""

    lag: int
    seconds: float | None = None
    verdict: str = ""
    forecast_s: float | None = None
    by_partition: Mapping[TopicPartition, ReportedLag] = field(default_factory=dict)
    is_partial: bool = False
    """The group also consumes topics that the user is not permitted to see."""

    def visible(self, topics: Container[str]) -> "LagSummary":
        """The part for a user who may see these topics; the verdict and the forecast are of all topics."""
        seen = {place: own for place, own in self.by_partition.items() if place.topic in topics}
        if len(seen) == len(self.by_partition):
            return self
        known = [own.seconds for own in seen.values() if own.seconds is not None]
        records = sum(own.lag or 0 for own in seen.values())
        return LagSummary(records, max(known, default=None), by_partition=seen, is_partial=True)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The committed offset of a group in a partition, and what it has not read yet."""

    partition: TopicPartition
    committed: int
    end: int | None
    """None if the partition no longer exists, or has no leader."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in records."""

    partitions: list[PartitionLag]

    @property
    def total(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def topics(self) -> list[str]:
        return sorted({each.partition.topic for each in self.partitions})


async def group_lag(cluster: Cluster, group_id: str) -> GroupLag:
    """Commits first, then ends: the lag is never negative."""
    committed = await Groups(cluster).committed(group_id)
    existing = [partition for partition in committed if await _has_leader(cluster, partition)]
    ends = await end_offsets(cluster, existing) if existing else {}
    return GroupLag(
        [
            PartitionLag(partition, commit.offset, ends.get(partition))
            for partition, commit in sorted(committed.items())
        ]
    )


async def _has_leader(cluster: Cluster, partition: TopicPartition) -> bool:
    try:
        return await cluster.leader(partition) >= 0
    except BrokerError:
        return False


async def lag_summaries(
    addresses: Iterable[Address], *, with_partitions: bool = False
) -> dict[str, LagSummary]:
    """The lag of all groups as brokers report it; without brokers that do not."""
    found: dict[str, LagSummary] = {}
    for address in addresses:
        after = ""
        try:
            for _ in range(PAGES_MAX):
                wanted = {"limit": PAGE, "partitions": int(with_partitions), "after": after}
                body = await read(address, f"/lag?{urlencode(wanted)}")
                page = await asyncio.to_thread(read_summaries, body, with_partitions=with_partitions)
                found.update(page)
                if len(page) < PAGE:
                    break
                after = max(page)
        except (GetFailed, ValueError, KeyError, TypeError):
            continue
    return found


async def lag_of(addresses: Iterable[Address], group_id: str) -> LagSummary | None:
    """What the coordinator of a group reports, with the partitions."""
    for address in addresses:
        try:
            body = await read(address, f"/lag?{urlencode({'group': group_id})}")
            summary = read_summaries(body, with_partitions=True).get(group_id)
        except (GetFailed, ValueError, KeyError, TypeError):
            continue
        if summary is not None:
            return summary
    return None


def read_summaries(body: bytes, *, with_partitions: bool = False) -> dict[str, LagSummary]:
    """Parse the response of `/lag`."""
    return {
        str(group["group"]): LagSummary(
            int(group.get("lag") or 0),
            group.get("lag_seconds"),
            str(group.get("verdict") or ""),
            group.get("forecast_seconds"),
            _by_partition(group.get("partitions") or ()) if with_partitions else {},
        )
        for group in json.loads(body)["groups"]
    }


def _by_partition(rows: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, ReportedLag]:
    return {
        TopicPartition(str(row["topic"]), int(row["partition"])): ReportedLag(
            row.get("lag"), row.get("lag_seconds"), row.get("reason")
        )
        for row in rows
    }
