"""Committed offsets by group id, and pending offsets of open transactions.

Offsets belong to a group id, regardless of the type of the group. Offsets that are committed in a transaction
are pending until the transaction ends:

    commit in a transaction ──▶ pending ──▶ the transaction commits ──▶ committed, unless a later record is
                                   │                                    present
                                   └──────▶ it aborts, or a tombstone follows ──▶ removed

"Later" refers to the offset of the commit's own record, not to that of the transaction marker: compaction
retains the last record of a key, and a shard that loads the compacted log must reach the same state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runnel.batch.header import NO_PRODUCER
from runnel.coordinator.contract import ReplayContext

TopicIdPartition = tuple[str, int]
"""Topic name and partition index."""


@dataclass(slots=True)
class CommittedOffset:
    """A committed offset of one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    """The expire timestamp from the retention time of an old client, or -1."""
    topic_id: bytes
    """The id of the topic; zero if the record has none."""
    record_offset: int = -1
    """The offset of its record in the log; -1 before it is appended."""


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one group."""

    committed: dict[str, dict[int, CommittedOffset]] = field(default_factory=dict)
    """Topic → partition → committed offset."""
    pending: dict[int, dict[TopicIdPartition, CommittedOffset]] = field(default_factory=dict)
    """Producer id → partition → offset that is committed if the producer's transaction commits."""

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.committed.get(topic, {}).get(partition)

    def all_committed(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.committed.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending commit of this offset."""
        return any((topic, partition) in changes for changes in self.pending.values())

    def partitions(self) -> list[TopicIdPartition]:
        """Every partition with an offset, committed or pending."""
        known = {(topic, partition): None for topic, partition, _ in self.all_committed()}
        for changes in self.pending.values():
            known |= dict.fromkeys(changes)
        return list(known)

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions of one topic with an offset, committed or pending."""
        known = dict.fromkeys(self.committed.get(topic, ()))
        for changes in self.pending.values():
            known |= {partition: None for name, partition in changes if name == topic}
        return list(known)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        self.committed.setdefault(topic, {})[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Remove an offset and its pending commits."""
        partitions = self.committed.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.committed[topic]
        for producer_id in list(self.pending):
            changes = self.pending[producer_id]
            changes.pop((topic, partition), None)
            if not changes:
                del self.pending[producer_id]

    def end(self, producer_id: int, is_commit: bool) -> None:
        """Apply the end of a producer's transaction."""
        changes = self.pending.pop(producer_id, {})
        if not is_commit:
            return
        for (topic, partition), change in changes.items():
            known = self.get(topic, partition)
            if known is None or known.record_offset < change.record_offset:
                self.put(topic, partition, change)


_NOTHING = GroupOffsets()
"""The offsets of groups that have none; never modified."""


class OffsetStore:
    """The offsets of all groups of a shard, changed only by replay."""

    def __init__(self) -> None:
        self._by_group: dict[str, GroupOffsets] = {}
        self._in_transaction: dict[int, set[str]] = {}
        """Producer id → groups that may have pending offsets in its transaction."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of(self, group_id: str) -> GroupOffsets:
        """The offsets of a group, read-only."""
        return self._by_group.get(group_id, _NOTHING)

    def groups(self) -> Iterator[tuple[str, GroupOffsets]]:
        return iter(self._by_group.items())

    def replay(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset, context: ReplayContext
    ) -> None:
        """Apply an offset commit record."""
        offsets = self._by_group.setdefault(group_id, GroupOffsets())
        committed.record_offset = context.offset
        if context.producer_id == NO_PRODUCER:
            offsets.put(topic, partition, committed)
        else:
            offsets.pending.setdefault(context.producer_id, {})[topic, partition] = committed
            self._in_transaction.setdefault(context.producer_id, set()).add(group_id)

    def topic_of(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """The committed offsets of a group in a topic, for replay: at least one must be added."""
        offsets = self._by_group.setdefault(group_id, GroupOffsets())
        return offsets.committed.setdefault(topic, {})

    def replay_tombstone(self, group_id: str, topic: str, partition: int) -> None:
        """Apply an offset tombstone."""
        offsets = self._by_group.get(group_id)
        if offsets is not None:
            offsets.remove(topic, partition)
            self._drop_if_empty(group_id, offsets)

    def replay_end(self, producer_id: int, is_commit: bool) -> None:
        """Apply a transaction marker."""
        for group_id in self._in_transaction.pop(producer_id, ()):
            offsets = self._by_group.get(group_id)
            if offsets is not None:
                offsets.end(producer_id, is_commit)
                self._drop_if_empty(group_id, offsets)

    def clear(self) -> None:
        self._by_group.clear()
        self._in_transaction.clear()

    def _drop_if_empty(self, group_id: str, offsets: GroupOffsets) -> None:
        if not offsets.committed and not offsets.pending:
            del self._by_group[group_id]
