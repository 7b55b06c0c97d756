"""Invariants of the metadata quorum, checked after each step of a node.

at most one leader per epoch · the votes of its majority are durable · epochs and high watermarks only grow ·
a committed batch is durable on a majority of the voters and never changes · images at equal offsets are equal
"""

from typing import NamedTuple
from zlib import crc32

from runnel.broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from runnel.controller.image import MetadataImage
from runnel.controller.snapshot import records_of
from runnel.raft.control import control_records
from runnel.raft.election_state import QUORUM_STATE, decode_state
from runnel.raft.values import ElectionState
from runnel.schemas.control import ControlType, LeaderChangeMessage
from runnel.schemas.metadata import encode_metadata_record
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.committed import Batch, CommittedLog, batches_of, bytes_of
from runnel.sim.cluster.node import Process, SimNode
from runnel.sim.history import Anomaly
from runnel.wire import decode


class Seen(NamedTuple):
    """A member of the quorum as it was after an earlier step."""

    epoch: int
    is_leader: bool
    high_watermark: int
    end_offset: int


class QuorumInvariants:
    """Compares all members of the metadata quorum."""

    def __init__(self, cluster: Cluster) -> None:
        self.committed = CommittedLog("metadata")
        self.elections = 0
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
        now = Seen(quorum.epoch, quorum.is_leader, quorum.high_watermark, log.written_offset)
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
        self._check_committed(node, quorum, now)

    def _elected(self, node: SimNode, quorum: QuorumLog, epoch: int) -> None:
        leader = self._leaders.setdefault(epoch, node.id)
        if leader != node.id:
            raise Anomaly(f"n{leader} and {node.host} lead the quorum in epoch {epoch}")
        self.elections += 1
        self._cluster.trace.add(node.host, f"leads the quorum in epoch {epoch}")
        for voter in granting_voters(quorum):
            state = stored_state(self._cluster.nodes[voter])
            has_voted = state.voted is not None and state.voted.id == node.id
            if voter in self._replaced or state.epoch > epoch:
                continue
            if state.epoch < epoch or not (has_voted or state.leader_id == node.id):
                raise Anomaly(f"n{voter} has voted for {node.host} in epoch {epoch}, its disk has {state}")

    def _check_committed(self, node: SimNode, quorum: QuorumLog, now: Seen) -> None:
        read = batches_of(quorum.log)
        if now.high_watermark <= self.committed.end_offset:
            self.committed.compare(node.id, now.high_watermark, read)
            return
        first = self.committed.end_offset
        self.committed.extend(node.id, now.high_watermark, read)
        added = {base: batch for base, batch in self.committed.batches.items() if base >= first}
        voters = quorum.voters.ids
        have = [voter for voter in voters if self._has(voter, added)]
        if len(have) <= len(voters) // 2:
            raise Anomaly(
                f"{node.host}: metadata below {now.high_watermark} is committed, "
                f"and durable on {have} of {voters}"
            )

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
