"""New committed offsets of a group: where it will read on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.offsets import end_offsets, offsets_since, start_offsets
from runnel.model.ids import TopicPartition


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


@dataclass(slots=True)
class Move:
    """A committed offset before and after the reset."""

    partition: TopicPartition
    before: int | None
    after: int


async def plan_reset(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> list[Move]:
    """The new offsets, clamped to those that exist."""
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
                raise ClientError(f"no committed offset to shift for {', '.join(uncommitted)}")
            wanted = {partition: committed[partition] + target.number for partition in partitions}
    return [
        Move(
            partition,
            committed.get(partition),
            min(max(wanted[partition], starts[partition]), ends[partition]),
        )
        for partition in partitions
    ]
