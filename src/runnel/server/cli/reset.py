"""Target offsets of `runnel group reset-offsets`."""

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
from runnel.server.cli.output import CommandError


class To(Enum):
    """Kinds of reset targets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(slots=True)
class ResetTarget:
    """A reset target: its kind, and an offset, time or shift where it needs one."""

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
    ) -> "ResetTarget":
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
            targets.append(cls(To.TIME, parse_moment_ms(to_datetime, now_ms)))
        if by_duration is not None:
            targets.append(cls(To.TIME, now_ms - parse_duration_ms(by_duration)))
        if shift_by is not None:
            targets.append(cls(To.SHIFT, shift_by))
        if len(targets) != 1:
            raise typer.BadParameter(
                "specify exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, "
                "--by-duration or --shift-by"
            )
        return targets[0]


@dataclass(slots=True)
class Move:
    """A committed offset before and after the reset."""

    partition: TopicPartition
    before: int | None
    after: int


async def reset(
    cluster: Cluster, group_id: str, topics: list[str], target: ResetTarget, execute: bool
) -> list[Move]:
    """Compute the new offsets and, with `execute`, commit them. No topics: all with committed offsets."""
    groups = Groups(cluster)
    committed = {partition: commit.offset for partition, commit in (await groups.committed(group_id)).items()}
    partitions = await chosen_partitions(cluster, topics) if topics else sorted(committed)
    if not partitions:
        raise CommandError(
            f"the group {group_id!r} has no committed offsets; specify the topics with --topic"
        )
    after = await _new_offsets(cluster, partitions, committed, target)
    if execute:
        await groups.commit(group_id, after)
    return [Move(partition, committed.get(partition), after[partition]) for partition in partitions]


async def _new_offsets(
    cluster: Cluster,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> dict[TopicPartition, int]:
    starts, ends = await start_offsets(cluster, partitions), await end_offsets(cluster, partitions)
    match target.to:
        case To.EARLIEST:
            wanted = starts
        case To.LATEST:
            wanted = ends
        case To.OFFSET:
            wanted = dict.fromkeys(partitions, target.number)
        case To.TIME:
            wanted = await offsets_since(cluster, partitions, target.number)
        case To.SHIFT:
            uncommitted = [str(partition) for partition in partitions if partition not in committed]
            if uncommitted:
                raise CommandError(f"no committed offset to shift for {', '.join(uncommitted)}")
            wanted = {partition: committed[partition] + target.number for partition in partitions}
    # Clamp to the offsets that exist.
    return {
        partition: min(max(wanted[partition], starts[partition]), ends[partition]) for partition in partitions
    }


async def chosen_partitions(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    """Parse partitions given as `orders` or `orders:0,2`."""
    chosen: list[TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        count = len((await cluster.topic(name)).partitions)
        wanted = parse_partitions(numbers) if colon else range(count)
        check_partitions(name, wanted, count)
        chosen += [TopicPartition(name, number) for number in wanted]
    return chosen


def check_partitions(topic: str, numbers: "list[int] | range", count: int) -> None:
    """Raise an error for partitions that the topic does not have."""
    missing = [number for number in numbers if number >= count]
    if missing:
        raise CommandError(f"topic {topic!r} has no partition {missing[0]}: it has {count}, numbered from 0")
