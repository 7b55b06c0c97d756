"""Invariants of replicated partitions, checked after each step of a node.

one leader per partition and leader epoch · a leader has everything that is committed · committed records
are equal on all replicas · every member of ISR and ELR has them, durable if the flush policy requires it ·
the high watermark never falls · a transaction is prepared before its markers are written
"""

from typing import NamedTuple

from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.image import MetadataImage
from runnel.controller.values import PartitionState
from runnel.model.errors import DamagedLog
from runnel.model.ids import TopicPartition
from runnel.ports.disk import PartitionLog
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.committed import CommittedLog, batches_of, durable_end
from runnel.sim.cluster.node import Process, SimNode
from runnel.sim.cluster.transaction_invariants import TransactionInvariants
from runnel.sim.history import Anomaly

PartitionId = tuple[bytes, int]
"""Topic id and index."""

INTERNAL_REPLICAS = 3

COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")


class Seen(NamedTuple):
    """A replica as it was after an earlier step."""

    log: PartitionLog
    """Another one if the replica was removed and added again."""
    is_leader: bool
    epoch: int
    high_watermark: int
    end_offset: int


class PartitionInvariants:
    """Compares all replicas of all partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.committed: dict[PartitionId, CommittedLog] = {}
        self.elections = 0
        """Number of leaders seen, without the first one of each partition."""
        self.may_be_damaged: set[int] = set()
        """Nodes whose files were damaged: they may not have found it yet."""
        self._transactions = TransactionInvariants()
        self._cluster = cluster
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._seen: dict[int, dict[TopicPartition, Seen]] = {}
        """Node → its replicas."""
        self._states: dict[PartitionId, PartitionState] = {}
        """The newest committed metadata of each partition."""
        self._epochs: dict[int, int] = {}
        """Node → its registered broker epoch, in the newest committed metadata."""
        self.fencings = 0
        """How often a broker was fenced while it was registered."""
        self._fenced: set[int] = set()
        self._stopping: set[int] = set()
        self._had_stopped: set[int] = set()
        """Those that were stopping in the metadata before the newest."""

    def process_ended(self, node: SimNode) -> None:
        """What the node's disk has afterwards is compared when it is open again."""
        self._seen.pop(node.id, None)
        for log in self.committed.values():
            log.verified.pop(node.id, None)

    def step(self, node: SimNode, process: Process) -> None:
        """The node has made a step."""
        seen = self._seen.setdefault(node.id, {})
        for name, partition in process.broker.partitions.items():
            before, replica, log = seen.get(name), partition.replica, partition.log
            if (
                before is None
                or before.high_watermark != replica.high_watermark
                or before.end_offset != log.written_offset
                or before.epoch != replica.epoch
                or before.is_leader != partition.is_leader
                or before.log is not log
            ):
                now = Seen(
                    log, partition.is_leader, replica.epoch, replica.high_watermark, log.written_offset
                )
                seen[name] = now
                self._changed(node, partition, before, now)
        self._transactions.check()

    def metadata_changed(self, image: MetadataImage) -> None:
        """A newer image is committed: new members of ISR and ELR must have what is committed."""
        self._check_brokers(image)
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                known = self._states.get((topic.id, index))
                if known is not state:
                    self._states[topic.id, index] = state
                    self._show(f"{topic.name}-{index}", known, state)
                    self._check_isr(topic.name, index, known, state)
                    if known is None or members(known) != members(state):
                        self._check_members((topic.id, index))

    def _check_brokers(self, image: MetadataImage) -> None:
        fenced = {broker.id for broker in image.brokers.values() if broker.is_fenced}
        # A new registration is fenced at first.
        epochs = {broker.id: broker.epoch for broker in image.brokers.values()}
        self.fencings += sum(
            epochs[node] == self._epochs.get(node) for node in fenced.difference(self._fenced)
        )
        self._epochs, self._fenced = epochs, fenced
        self._had_stopped, self._stopping = (
            self._stopping,
            {broker.id for broker in image.brokers.values() if broker.is_stopping},
        )

    def _check_isr(self, name: str, index: int, known: PartitionState | None, state: PartitionState) -> None:
        """Fenced brokers are in no ISR, stopping ones do not enter it; internal topics have all replicas."""
        added = set(state.isr).difference(known.isr if known is not None else ())
        if self._fenced.intersection(state.isr) or added & self._stopping & self._had_stopped:
            raise Anomaly(
                f"{name}-{index}: ISR {state.isr} after {known and known.isr}, "
                f"fenced are {sorted(self._fenced)}, stopping are {sorted(self._stopping)}"
            )
        if name in COMPACTED_TOPICS and len(state.replicas) < INTERNAL_REPLICAS:
            raise Anomaly(f"{name}-{index} has only the replicas {state.replicas}")

    def _show(self, name: str, known: PartitionState | None, state: PartitionState) -> None:
        if known is None or (known.leader, known.isr, known.replicas) != (
            state.leader,
            state.isr,
            state.replicas,
        ):
            text = f"{name} is led by {state.leader} in epoch {state.leader_epoch}, ISR {state.isr}"
            self._cluster.trace.add("metadata", f"{text}, ELR {state.eligible} of {state.replicas}")

    def check_acknowledged(self, topic_id: bytes, index: int, end_offset: int) -> None:
        """A client received an acknowledgement of all replicas for everything below `end_offset`."""
        log = self.committed.get((topic_id, index))
        if log is None or log.end_offset < end_offset:
            raise Anomaly(f"{index}@{end_offset - 1} was acknowledged, {log and log.end_offset} is committed")
        self._check_members((topic_id, index))

    def check_read(self, topic_id: bytes, index: int, offset: int) -> None:
        """A client has read a record: no other may ever have its offset."""
        log = self.committed.get((topic_id, index))
        if log is None or log.end_offset <= offset:
            raise Anomaly(f"{index}@{offset} was read, {log and log.end_offset} is committed")

    def check_all(self) -> None:
        """All replicas of running nodes equal the committed log."""
        for node in self._cluster.running_nodes():
            assert node.process is not None
            for partition in node.process.broker.partitions.values():
                log = self._log(partition)
                log.verified.pop(node.id, None)
                self._compare(log, node.id, min(partition.high_watermark, log.end_offset), partition.log)

    def _changed(self, node: SimNode, partition: ReplicatedLog, before: Seen | None, now: Seen) -> None:
        committed = self._log(partition)
        if before is not None and before.log is not now.log:
            before = None
            committed.truncated(node.id, 0)
        if before is not None:
            if now.end_offset < before.end_offset:
                committed.truncated(node.id, now.end_offset)
            if now.high_watermark < before.high_watermark:
                raise Anomaly(
                    f"{node.host}: the high watermark of {partition.name} fell: {before[1:]}, {now[1:]}"
                )
        if now.is_leader:
            self._lead(node, partition, committed, before, now)
        else:
            if before is not None and before.is_leader:
                # A smaller ISR may have committed records just before it resigned, in the same step.
                self._commit(node, partition, committed, now)
            end_offset = min(now.high_watermark, committed.end_offset)
            self._compare(committed, node.id, end_offset, partition.log)

    def _lead(
        self, node: SimNode, partition: ReplicatedLog, committed: CommittedLog, before: Seen | None, now: Seen
    ) -> None:
        if before is None or not before.is_leader or before.epoch != now.epoch:
            self._elected(node, partition, now.epoch)
            self._compare(committed, node.id, committed.end_offset, partition.log)
        elif now.end_offset > before.end_offset:
            self._transactions.appended(partition, before.end_offset, now.end_offset)
            # Only coordinators write here, at once: no thread writes what was accepted before.
            if committed.is_compacted and partition.leader.is_under_min_isr:
                isr = sorted(partition.leader.isr)
                raise Anomaly(f"{partition.name}: {node.host} appends while {isr} are in sync")
        self._commit(node, partition, committed, now)

    def _commit(self, node: SimNode, partition: ReplicatedLog, committed: CommittedLog, now: Seen) -> None:
        """The high watermark of a leader counts: all members of the ISR must have everything below."""
        if now.high_watermark > committed.end_offset:
            self._transactions.committed(partition, committed.end_offset, now.high_watermark)
            committed.extend(node.id, now.high_watermark, batches_of(partition.log))
            self._check_members((partition.topic_id, partition.name.partition))

    def _elected(self, node: SimNode, partition: ReplicatedLog, epoch: int) -> None:
        key = (partition.topic_id, partition.name.partition, epoch)
        leader = self._leaders.setdefault(key, node.id)
        if leader != node.id:
            raise Anomaly(f"n{leader} and {node.host} lead {partition.name} in epoch {epoch}")
        self.elections += epoch > 0
        self._cluster.trace.add(node.host, f"leads {partition.name} in epoch {epoch}")

    def _check_members(self, partition_id: PartitionId) -> None:
        state, committed = self._states.get(partition_id), self.committed.get(partition_id)
        if state is None or committed is None:
            return
        for node_id in members(state):
            process = self._cluster.nodes[node_id].process
            if process is None or not process.has_quorum or process.broker.epoch != self._epochs.get(node_id):
                # It leaves ISR and ELR when it registers, if it may have lost records.
                continue
            name = TopicPartition(committed.name.rpartition("-")[0], partition_id[1])
            partition = process.broker.partitions.get(name)
            if partition is not None and partition.topic_id == partition_id[0]:
                self._check_member(node_id, partition, committed, state)

    def _check_member(
        self, node_id: int, partition: ReplicatedLog, committed: CommittedLog, state: PartitionState
    ) -> None:
        log = partition.log
        stored = log.written_offset
        if log.config.acks_wait_for_disk and log.durable_offset < min(committed.end_offset, stored):
            # After a restart it is durable without the process knowing it.
            files = self._cluster.nodes[node_id].files
            stored = durable_end(files, f"/data/{partition.name}", log.durable_offset)
        if stored < committed.end_offset:
            raise Anomaly(
                f"{partition.name}: n{node_id} is in ISR {state.isr} or ELR {state.eligible} and has {stored}"
                f"{' durable' * log.config.acks_wait_for_disk}, committed is {committed.end_offset}"
            )
        self._compare(committed, node_id, committed.end_offset, log)

    def _compare(self, committed: CommittedLog, node_id: int, end_offset: int, log: PartitionLog) -> None:
        try:
            committed.compare(node_id, end_offset, batches_of(log))
        except DamagedLog:
            if node_id not in self.may_be_damaged:
                raise

    def _log(self, partition: ReplicatedLog) -> CommittedLog:
        key = (partition.topic_id, partition.name.partition)
        log = self.committed.get(key)
        if log is None:
            is_compacted = partition.name.topic in COMPACTED_TOPICS
            log = self.committed[key] = CommittedLog(str(partition.name), is_compacted)
        return log


def members(state: PartitionState) -> tuple[int, ...]:
    """The replicas that must have everything that is committed."""
    return (*state.isr, *state.eligible)
