"""Target offsets of `runnel group reset-offsets`."""

import time

import typer

from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.offset_reset import Move, ResetTarget, To, plan_reset
from runnel.model.ids import TopicPartition
from runnel.server.cli.options import parse_duration_ms, parse_moment_ms, parse_partitions
from runnel.server.cli.output import CommandError


def choose_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> ResetTarget:
    """Exactly one of the options must be given."""
    now_ms = time.time_ns() // 1_000_000
    targets = []
    if to_earliest:
        targets.append(ResetTarget(To.EARLIEST))
    if to_latest:
        targets.append(ResetTarget(To.LATEST))
    if to_offset is not None:
        targets.append(ResetTarget(To.OFFSET, to_offset))
    if to_datetime is not None:
        targets.append(ResetTarget(To.TIME, parse_moment_ms(to_datetime, now_ms)))
    if by_duration is not None:
        targets.append(ResetTarget(To.TIME, now_ms - parse_duration_ms(by_duration)))
    if shift_by is not None:
        targets.append(ResetTarget(To.SHIFT, shift_by))
    if len(targets) != 1:
        raise typer.BadParameter(
            "specify exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, "
            "--by-duration or --shift-by"
        )
    return targets[0]


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
    moves = await plan_reset(cluster, partitions, committed, target)
    if execute:
        await groups.commit(group_id, {move.partition: move.after for move in moves})
    return moves


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
