"""Translates the committed offsets of consumer groups to the restored topic."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.groups import Commit, Groups, check_committed, commit_request
from runnel.messages.offset_commit import OffsetCommitResponse
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.restore.restore_state import translate

_ORIGIN = re.compile(r"runnel\.restore (?P<topic>\S+) (?P<offset>\d+)")
"""Metadata of a commit: the original offset, from which a second translation starts."""


@dataclass(slots=True)
class GroupMove:
    """The committed offset of a group in one partition, before and after translation."""

    group: str
    partition: int
    offset_before: int
    offset_after: int


def committed_by(broker: BrokerView, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group, as original offsets before any restore."""
    offsets: dict[int, int] = {}
    for number, commit in _commits(broker, group, topic).items():
        translated_from = _translated_from(commit, topic)
        offsets[number] = commit.offset if translated_from is None else translated_from
    return offsets


def commits_since_restore(
    broker: BrokerView, group: str, source_topic: str, target_topic: str, restored: Container[int]
) -> dict[int, int]:
    """Offsets that a group has committed itself in already restored partitions."""
    return {
        number: commit.offset
        for number, commit in _commits(broker, group, target_topic).items()
        if number in restored and _translated_from(commit, source_topic) is None
    }


def _commits(broker: BrokerView, group: str, topic: str) -> dict[int, Commit]:
    commits = broker.run(lambda cluster: Groups(cluster).committed(group))
    return {partition.partition: commit for partition, commit in commits.items() if partition.topic == topic}


def _translated_from(commit: Commit, topic: str) -> int | None:
    found = _ORIGIN.fullmatch(commit.metadata)
    return int(found["offset"]) if found is not None and found["topic"] == topic else None


def move_group(
    broker: BrokerView, group: str, offsets: Mapping[int, int], source_topic: str, target_topic: str
) -> list[GroupMove]:
    """Commit the translated offsets of a group, which must have no members."""

    async def move(cluster: Cluster) -> list[GroupMove]:
        moves = []
        for number, before in sorted(offsets.items()):
            partition = TopicPartition(target_topic, number)
            after = await translate(cluster, partition, source_topic, before)
            moves.append(GroupMove(group, number, before, after))
        await _commit(cluster, group, moves, source_topic, target_topic)
        return moves

    return broker.run(move) if offsets else []


async def _commit(
    cluster: Cluster, group: str, moves: list[GroupMove], source_topic: str, target_topic: str
) -> None:
    request = commit_request(
        group, {TopicPartition(target_topic, move.partition): move.offset_after for move in moves}
    )
    before = {move.partition: move.offset_before for move in moves}
    for topic in request.topics:
        for view in topic.partitions:
            view.committed_metadata = f"runnel.restore {source_topic} {before[view.partition_index]}"

    async def ask() -> None:
        answer = await cluster.send_to_coordinator(group, request, OffsetCommitResponse)
        check_committed(group, answer)

    await cluster.retry(ask, lambda: cluster.invalidate_coordinator(group))
