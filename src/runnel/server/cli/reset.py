"""Where a group's offsets are moved to."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import typer

from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.offsets import end_offsets, offsets_since, start_offsets
from runnel.model.ids import TopicPartition
from runnel.server.cli.options import parse_duration_ms, parse_moment_ms, parse_partitions
from runnel.server.cli.output import CannotDo


class To(Enum):
    """The kinds of places that offsets can be moved to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    MOMENT = "moment"
    SHIFT = "shift"


@dataclass(slots=True)
class Target:
    """Where to: a kind of place, and a number where it needs one."""

    to: To
    number: int = 0

    @classmethod
    def choose(
        cls,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        to_datetime: str | None,
        by_duration: str | None,
        shift_by: int | None,
    ) -> "Target":
        """Exactly one of the options must be given."""
        now_ms = time.time_ns() // 1_000_000
        targets = []
        if to_earliest:
            targets.append(cls(To.EARLIEST))
        if to_latest:
            targets.append(cls(To.LATEST))
        if to_offset is not None:
            targets.append(cls(To.OFFSET, to_offset))
        if to_datetime is not None:
            targets.append(cls(To.MOMENT, parse_moment_ms(to_datetime, now_ms)))
        if by_duration is not None:
            targets.append(cls(To.MOMENT, now_ms - parse_duration_ms(by_duration)))
        if shift_by is not None:
            targets.append(cls(To.SHIFT, shift_by))
        if len(targets) != 1:
            raise typer.BadParameter(
                "say where to, once: --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration "
                "or --shift-by"
            )
        return targets[0]


@dataclass(slots=True)
class Move:
    """One offset before and after."""

    partition: TopicPartition
    before: int | None
    after: int


async def reset(
    cluster: Cluster, group_id: str, topics: list[str], target: Target, execute: bool
) -> list[Move]:
    """Work out the new offsets, and commit them if that is wanted. No topics: all the group has read."""
    groups = Groups(cluster)
    committed = {partition: commit.offset for partition, commit in (await groups.committed(group_id)).items()}
    partitions = await chosen_partitions(cluster, topics) if topics else sorted(committed)
    if not partitions:
        raise CannotDo(f"the group {group_id!r} has no committed offsets; say what to read with --topic")
    after = await _new_offsets(cluster, partitions, committed, target)
    if execute:
        await groups.commit(group_id, after)
    return [Move(partition, committed.get(partition), after[partition]) for partition in partitions]


async def _new_offsets(
    cluster: Cluster,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, int]:
    starts, ends = await start_offsets(cluster, partitions), await end_offsets(cluster, partitions)
    match target.to:
        case To.EARLIEST:
            wanted = starts
        case To.LATEST:
            wanted = ends
        case To.OFFSET:
            wanted = dict.fromkeys(partitions, target.number)
        case To.MOMENT:
            wanted = await offsets_since(cluster, partitions, target.number)
        case To.SHIFT:
            never_read = [str(partition) for partition in partitions if partition not in committed]
            if never_read:
                raise CannotDo(f"the group never read {', '.join(never_read)}: there is no offset to shift")
            wanted = {partition: committed[partition] + target.number for partition in partitions}
    # Outside of the log there is nothing to read from: as near as it goes.
    return {
        partition: min(max(wanted[partition], starts[partition]), ends[partition]) for partition in partitions
    }


async def chosen_partitions(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    """The partitions behind texts such as `orders` or `orders:0,2`."""
    chosen: list[TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        count = len((await cluster.topic(name)).partitions)
        wanted = parse_partitions(numbers) if colon else range(count)
        check_partitions(name, wanted, count)
        chosen += [TopicPartition(name, number) for number in wanted]
    return chosen


def check_partitions(topic: str, numbers: "list[int] | range", count: int) -> None:
    """Refuse partitions that the topic does not have."""
    missing = [number for number in numbers if number >= count]
    if missing:
        raise CannotDo(f"topic {topic!r} has no partition {missing[0]}: its {count} are numbered from 0")
