"""Invariants of the metadata quorum, checked after each step of a node.

at most one leader per epoch · the votes of its majority are durable · epochs and high watermarks only grow ·
a committed batch is durable on a majority of the voters and never changes · images at equal offsets are equal
a leader commits records of earlier epochs only with one of its own
· voters change one at a time, and not before the last change is committed ·
what was removed from the start of a log is in a durable snapshot
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from runnel.batch.errors import CorruptBatch
from runnel.broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from runnel.controller.image import MetadataImage
from runnel.controller.snapshot import records_of
from runnel.disk.snapshots import cut_batches
from runnel.log.names import snapshot_of
from runnel.raft.control import control_records, read_snapshot_voters, voter_changes
from runnel.raft.election_state import QUORUM_STATE, decode_state
from runnel.raft.values import ElectionState, ReplicaKey
from runnel.raft.voters import Voters
from runnel.schemas.control import ControlType, LeaderChangeMessage
from runnel.schemas.metadata import encode_metadata_record
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.committed import Batch, CommittedLog, batches_of, bytes_of, read_batches
from runnel.sim.cluster.node import Process, SimNode
from runnel.sim.history import Anomaly
from runnel.wire import decode


class Seen(NamedTuple):
    """A member of the quorum as it was after an earlier step."""

    epoch: int
    is_leader: bool
    high_watermark: int
    start_offset: int
    end_offset: int
    voters_offset: int
    """Of the last change of the voters."""


class QuorumInvariants:
    """Compares all members of the metadata quorum."""

    def __init__(self, cluster: Cluster) -> None:
        self.committed = CommittedLog("metadata")
        self.elections = 0
        self.voter_changes: Counter[str] = Counter()
        """Committed changes of the voters by kind."""
        self._voters: frozenset[ReplicaKey] = frozenset()
        """According to the last one of them."""
        self._cluster = cluster
        self._leaders: dict[int, int] = {}
        """Epoch → leader."""
        self._seen: dict[int, Seen] = {}
        self._epochs: dict[int, int] = {}
        """Node → the epoch that it had stored when its last process ended."""
        self._replaced: set[int] = set()
        """Nodes whose files were replaced: they have forgotten votes."""
        self._tails: dict[int, dict[int, Batch]] = {}
        """Node that does not run → what is on its disk, from the committed end on."""
        self._lost: dict[int, dict[int, Batch]] = {}
        """Node whose files were replaced → what it had before, and may have acknowledged."""
        self._images: dict[int, int] = {}
        """Version → digest."""
        self._versions: dict[int, int] = {}
        """Node → the version of its image."""

    def process_ended(self, node: SimNode, process: Process) -> None:
        """The node starts from its disk the next time."""
        if process.has_quorum:
            self._tails[node.id] = durable_tail(process, self.committed.end_offset)
            self._epochs[node.id] = stored_state(node).epoch
        self._seen.pop(node.id, None)
        self._versions.pop(node.id, None)
        self.committed.verified.pop(node.id, None)

    def disk_replaced(self, node: SimNode) -> None:
        """The node returns with other files than it had: it may know less than before."""
        self._epochs.pop(node.id, None)
        self._lost.setdefault(node.id, {}).update(self._tails.pop(node.id, {}))
        self._replaced.add(node.id)

    def step(self, node: SimNode, process: Process) -> MetadataImage | None:
        """The node has made a step; returns its image if that is new."""
        quorum = process.broker.quorum
        log = quorum.log
        now = Seen(
            quorum.epoch,
            quorum.is_leader,
            quorum.high_watermark,
            log.log_start_offset,
            log.written_offset,
            quorum.core.history.last_change_offset,
        )
        before = self._seen.get(node.id)
        if before != now:
            self._seen[node.id] = now
            self._changed(node, quorum, before, now)
        image = process.broker.metadata.image
        if image.version == self._versions.get(node.id):
            return None
        self._versions[node.id] = image.version
        self._check_image(node, image)
        return image

    def _changed(self, node: SimNode, quorum: QuorumLog, before: Seen | None, now: Seen) -> None:
        known = self._epochs.get(node.id, 0) if before is None else before.epoch
        if now.epoch < known:
            raise Anomaly(f"{node.host}: epoch {now.epoch} after {known}")
        if now.is_leader and (before is None or not before.is_leader or before.epoch != now.epoch):
            self._elected(node, quorum, now.epoch)
        if before is not None:
            if now.end_offset < before.end_offset:
                self.committed.truncated(node.id, now.end_offset)
            if now.high_watermark < before.high_watermark:
                raise Anomaly(f"{node.host}: the high watermark of the metadata fell: {before}, {now}")
        has_changed_voters = before is not None and now.voters_offset > before.voters_offset
        # What is committed in the step of a change may have been committed before the change.
        earlier = quorum.core.history.previous if has_changed_voters else quorum.voters
        self._check_committed(node, quorum, now, {tuple(quorum.voters.ids), tuple(earlier.ids)})
        if before is not None and has_changed_voters and now.is_leader:
            self._check_last_change(node, before.voters_offset, now.voters_offset)
        if now.start_offset > (before.start_offset if before is not None else 0):
            self._check_snapshot(node, now.start_offset)

    def _check_last_change(self, node: SimNode, last_offset: int, offset: int) -> None:
        """Majorities of two sets in succession overlap, but not those of more."""
        if last_offset >= self.committed.end_offset:
            raise Anomaly(
                f"{node.host} changes the voters at {offset}, and their change at {last_offset} "
                f"is not committed: {self.committed.end_offset} is"
            )

    def _check_snapshot(self, node: SimNode, start_offset: int) -> None:
        """What was removed from the log must be in a snapshot that survives a power failure."""
        if node.id not in self._replaced and not any(
            end_offset >= start_offset for end_offset in durable_snapshots(node)
        ):
            raise Anomaly(
                f"{node.host}: the metadata log begins at {start_offset}, and there is no snapshot of that"
            )

    def _elected(self, node: SimNode, quorum: QuorumLog, epoch: int) -> None:
        leader = self._leaders.setdefault(epoch, node.id)
        if leader != node.id:
            raise Anomaly(f"n{leader} and {node.host} lead the quorum in epoch {epoch}")
        self.elections += 1
        self._cluster.trace.add(node.host, f"leads the quorum in epoch {epoch}")
        for voter in granting_voters(quorum):
            if voter in self._replaced:
                continue
            state = stored_state(self._cluster.nodes[voter])
            has_voted = state.voted is not None and state.voted.id == node.id
            if state.epoch > epoch:
                continue
            if state.epoch < epoch or not (has_voted or state.leader_id == node.id):
                raise Anomaly(f"n{voter} has voted for {node.host} in epoch {epoch}, its disk has {state}")

    def _check_committed(
        self, node: SimNode, quorum: QuorumLog, now: Seen, voters: set[tuple[int, ...]]
    ) -> None:
        read = batches_of(quorum.log)
        if now.high_watermark <= self.committed.end_offset:
            self.committed.compare(node.id, now.high_watermark, read, now.start_offset)
            return
        first = self.committed.end_offset
        self.committed.extend(node.id, now.high_watermark, read, now.start_offset)
        for batch in read_batches(quorum.log, first, now.high_watermark):
            for change in voter_changes(batch):
                if change.voters is not None:
                    self._voters_changed(change.voters)
        added = {base: batch for base, batch in self.committed.batches.items() if base >= first}
        if now.is_leader and added[max(added)][1] != now.epoch:
            raise Anomaly(f"{node.host}: epoch {now.epoch} commits {added}, records of earlier ones only")
        have = {voter for voter in {each for ids in voters for each in ids} if self._has(voter, added)}
        if not any(len(have.intersection(each)) > len(each) // 2 for each in voters):
            raise Anomaly(
                f"{node.host}: metadata below {now.high_watermark} is committed, "
                f"and durable on {sorted(have)} of {' or '.join(map(str, voters))}"
            )

    def _voters_changed(self, voters: Voters) -> None:
        known, self._voters = self._voters, frozenset(voter.key for voter in voters)
        if not known:
            return
        added, removed = self._voters - known, known - self._voters
        if len(added) + len(removed) > 1:
            raise Anomaly(f"the voters {sorted(known)} became {sorted(self._voters)} in one change")
        self.voter_changes["voters added"] += len(added)
        self.voter_changes["voters removed"] += len(removed)

    def _has(self, node_id: int, batches: dict[int, Batch]) -> bool:
        """Does a node have these batches on its disk, so that a power failure would not remove them?

        Or did it, until its files were replaced: the leader may have its acknowledgement.
        """
        tail = self._tails.get(node_id, {})
        process = self._cluster.nodes[node_id].process
        if process is not None and process.has_quorum:
            tail = durable_tail(process, min(batches))
        lost = self._lost.get(node_id, {})
        return all(batch in (tail.get(base), lost.get(base)) for base, batch in batches.items())

    def _check_image(self, node: SimNode, image: MetadataImage) -> None:
        digest = 0
        for record in records_of(image):
            digest = crc32(encode_metadata_record(record), digest)
        known = self._images.setdefault(image.version, digest)
        if known != digest:
            raise Anomaly(f"{node.host}: its image at offset {image.version} differs from another node's")


def stored_state(node: SimNode) -> ElectionState:
    """What a member of the quorum knows of elections after a power failure."""
    data = node.files.durable_bytes(f"/data/{METADATA_PARTITION}/{QUORUM_STATE}")
    return decode_state(data) if data else ElectionState(0)


def durable_snapshots(node: SimNode) -> Iterator[int]:
    """The end offsets of the complete snapshots of the metadata that survive a power failure."""
    folder = f"/data/{METADATA_PARTITION}"
    for name in node.files.names(folder):
        snapshot = snapshot_of(name)
        if snapshot is not None:
            with suppress(CorruptBatch):
                read_snapshot_voters(cut_batches(memoryview(node.files.durable_bytes(f"{folder}/{name}"))))
                yield snapshot.end_offset


def granting_voters(quorum: QuorumLog) -> list[int]:
    """The voters that have elected a leader, as the first record of its epoch states."""
    assert quorum.core.leader is not None
    found = quorum.log.read(
        quorum.core.leader.start_offset, 1, quorum.log.written_offset, at_least_one=True, may_block=True
    )
    for kind, record in control_records(b"".join(bytes_of(part) for part in found.parts)):
        if kind == ControlType.LEADER_CHANGE:
            message = decode(LeaderChangeMessage, 0, record.value or b"")
            return [voter.voter_id for voter in message.granting_voters]
    raise Anomaly(f"epoch {quorum.epoch} does not begin with a leader change")


def durable_tail(process: Process, first: int) -> dict[int, Batch]:
    """The batches of a node's metadata log from an offset on that survive a power failure."""
    log = process.broker.quorum.log
    return dict(batches_of(log)(first, log.durable_offset))
