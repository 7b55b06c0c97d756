"""The metadata log of this node as part of the quorum: drives the core in `runnel.raft`.

    peers, timers, disk ──▶ core ──▶ outputs, in order: store state, send, append, truncate, advance
                                                           │
                                     held until quorum-state is durable: nothing is revealed before

A leader appends at once, and counts its own log up to the durable offset; a follower fetches again once what
it received is durable, which acknowledges it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from runnel.batch.header import Buffer
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.probes import majority_has_ended
from runnel.broker.runtime.promise import MaybePromise, Promise
from runnel.broker.runtime.quorum_channels import QuorumChannels
from runnel.broker.runtime.quorum_listener import NoListener, QuorumListener
from runnel.broker.runtime.quorum_replica import LogReplica, Unstored
from runnel.broker.runtime.quorum_reports import QuorumReports
from runnel.broker.runtime.quorum_snapshots import QuorumSnapshots
from runnel.broker.runtime.quorum_start import (
    Membership,
    core_of,
    load_snapshots,
    load_state,
    membership_of,
    metadata_log_config,
    scan_voters,
)
from runnel.broker.runtime.quorum_view import QuorumLogView
from runnel.broker.runtime.quorum_voters import CommitWait, QuorumVoters
from runnel.broker.runtime.remedies import REPLACE_VOTER, only_copy_remedy
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.image import BadMetadata
from runnel.controller.values import CLUSTER_METADATA
from runnel.model.errors import ApiError, ErrorCode, NotController, StorageFailed
from runnel.model.ids import METADATA_TOPIC_ID, NO_LEADER, SnapshotId, TopicPartition
from runnel.ports.clock import TimerHandle
from runnel.ports.disk import Origin, Snapshots
from runnel.raft.control import control_batch, leader_change, voter_changes
from runnel.raft.election_state import QUORUM_STATE, encode_state
from runnel.raft.replies import BrokenLog
from runnel.raft.values import (
    Advanced,
    Append,
    ElectionState,
    Follow,
    Lead,
    Output,
    Reply,
    Send,
    StoreState,
    Truncate,
    WritePage,
)
from runnel.raft.voters import VoterHistory, Voters
from runnel.schemas.control import ControlType
from runnel.wire import Data

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

logger = logging.getLogger("runnel.broker")

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, 0)
STORE_RETRY_MS = 200
"""The delay before quorum-state is written again after a failure of the disk."""
SUCCESSOR_CHECK_MS = 100
"""How often a leader that stops checks whether the others can elect a leader."""
NEVER_MS = 2**61

T = TypeVar("T")


class _Release:
    """A reply that may be sent once everything before it is durable."""

    __slots__ = ("promise", "value")

    def __init__(self, promise: Promise[Any], value: Any) -> None:
        self.promise = promise
        self.value = value


class QuorumLog:
    """The log `__cluster_metadata-0`, replicated by the quorum."""

    def __init__(self, broker: "Broker", membership: Membership) -> None:
        disk = broker.disk
        self._broker = broker
        self._disk, self._clock, self._timers = disk, broker.clock, broker.timers
        self.membership = membership
        config = metadata_log_config(broker.settings, can_vote=membership.can_vote)
        self.log = disk.open_log(METADATA_PARTITION, METADATA_TOPIC_ID, config)
        if self.log.failure is not None:
            remedy = f". {only_copy_remedy(METADATA_PARTITION)}" if _is_sole_voter(membership) else ""
            raise BadMetadata(f"the metadata log is damaged: {self.log.failure}{remedy}")
        self.snapshots: Snapshots = disk.snapshots(METADATA_PARTITION)
        """The snapshots beside the log."""
        self._files = disk.state_files(METADATA_PARTITION)
        self.view = QuorumLogView(self.log)
        self._history = VoterHistory(membership.configured)
        self._state: ElectionState | None = None
        self.core = core_of(membership, self.view, self._history, broker.entropy.below)
        self._snapshots = QuorumSnapshots(self, broker)
        self.voter_changes = QuorumVoters(self, broker)
        """Adds, removes and updates voters."""
        self._waits: list[CommitWait] = []
        self._reports = QuorumReports(self, broker.timers)
        self._channels = QuorumChannels(
            broker,
            membership,
            self._answered,
            self._send_failed,
            self._unsupported,
            self._reports,
        )
        self.is_unwritable = False
        """This node was elected, but could not write to its log."""
        self._listener: QuorumListener = NoListener()
        self._queue: deque[Output | _Release] = deque()
        self._is_blocked = False
        """An output is being carried out by a thread; the others wait for it."""
        self._is_pumping = False
        self._announced_epoch = -1
        """The last epoch for which `elected` was called."""
        self._timer: TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._is_running = False
        self._handed_over: asyncio.Event = asyncio.Event()
        self.replicated: ReplicatedLog

    @classmethod
    async def open(cls, broker: "Broker") -> "QuorumLog":
        """Open the log and find what this node knows of the quorum. BadMetadata if it cannot be read.

        A node that cannot vote has made no promise: it fetches again what it cannot read.
        """
        membership = membership_of(broker)
        try:
            return await cls._opened(broker, membership)
        except BadMetadata as damage:
            if _is_sole_voter(membership):
                raise
            if membership.can_vote:
                raise BadMetadata(f"{damage}. {REPLACE_VOTER}") from damage
            logger.error("the copy of the metadata log cannot be used, and is fetched again: %s", damage)
            broker.disk.remove_log(METADATA_PARTITION)
            return await cls._opened(broker, membership)

    @classmethod
    async def _opened(cls, broker: "Broker", membership: Membership) -> "QuorumLog":
        quorum = cls(broker, membership)
        await quorum._load()
        return quorum

    async def _load(self) -> None:
        disk, log = self._disk, self.log
        self._state = await load_state(disk, self._files)
        await load_snapshots(disk, self.snapshots, log, self.view, self._history)
        newest = self.view.snapshots[0].end_offset if self.view.snapshots else 0
        if newest < log.log_start_offset:
            lost = f"the metadata log begins at offset {log.log_start_offset}"
            raise BadMetadata(f"{lost}, and no snapshot has what was before")
        await scan_voters(disk, log, self._history, newest)
        committed = min(max(log.high_watermark, newest), log.written_offset)
        if self._history.current.ids == [self.core.node.id]:
            committed = max(committed, await self._sync_at_start())
        self.core.restore(committed, log.durable_offset)
        replica = LogReplica(self)
        self._replica = replica
        self.replicated = ReplicatedLog(
            METADATA_PARTITION, METADATA_TOPIC_ID, log, replica, self._broker.turn, disk, self._clock
        )

    async def _sync_at_start(self) -> int:
        """The durable offset. What a sole voter has stored is committed: no other can replace it."""
        try:
            return await self._disk.sync(self.log)
        except ApiError as error:
            logger.error("the metadata log cannot be made durable: %s", error)
            return self.log.durable_offset

    def start(self, listener: QuorumListener) -> None:
        """Take part in the quorum from now on. A sole voter elects itself."""
        self._listener = listener
        self._is_running = True
        self._reports.start()
        self.core.start(self._state, self._now_ms())
        self.replicated.commit_stored()
        self._pump()

    async def close(self) -> None:
        """Hand over leadership, if this node leads others, and leave the quorum."""
        if self._is_running and self.core.leader is not None and self.core.leader.replicas:
            self._handed_over.clear()
            self.resign()
            if not await self._wait_for_successor(2 * self.membership.timing.election_timeout_ms):
                logger.info("no other controller was elected before this one stopped")
        self._stop()

    async def _wait_for_successor(self, timeout_ms: int) -> bool:
        """Wait for another leader, as long as there can be one."""
        deadline_ms = self._now_ms() + timeout_ms
        while not self._handed_over.is_set() and self._now_ms() < deadline_ms:
            with suppress(TimeoutError):
                async with asyncio.timeout(SUCCESSOR_CHECK_MS / 1000):
                    await self._handed_over.wait()
            if not self._handed_over.is_set() and await majority_has_ended(self._broker):
                break
        return self._handed_over.is_set()

    def resign(self) -> None:
        """Stop leading, if this node does; others elect the next leader."""
        self.core.resign(self._now_ms())
        self._pump()

    def _stop(self) -> None:
        self._is_running = False
        self._cancel_timer()
        self._reports.stop()
        self._channels.close()
        while self._queue:
            step = self._queue.popleft()
            if isinstance(step, _Release):
                step.promise.fail(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is stopping"))

    # -- state

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def leader_id(self) -> int:
        """The node that leads, or -1."""
        return self.core.leader_id

    @property
    def is_leader(self) -> bool:
        """Does this node lead, and may it append?"""
        return self.core.leader is not None and self.replicated.is_leader

    def valid_ms(self, sent_ms: int) -> int:
        """When the active controller that answered a request of this time was certainly the only one.

        One on this node may have been replaced since a majority last fetched from it.
        """
        leader = self.core.leader
        return sent_ms if leader is None or not leader.replicas else min(sent_ms, leader.majority_ms)

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this node knows."""
        return self.core.high_watermark

    @property
    def end_offset(self) -> int:
        return self.log.written_offset

    @property
    def voters(self) -> Voters:
        """The current voters."""
        return self._history.current

    @property
    def kraft_version(self) -> int:
        return self._history.kraft_version

    def leader_endpoint(self) -> tuple[int, str, int] | None:
        """(id, host, port) of the leader, under the listener of controllers; None if it is unknown."""
        leader_id = self.core.leader_id
        for endpoint in self.core.leader_endpoints:
            if endpoint.name == self.membership.listener and leader_id >= 0:
                return leader_id, endpoint.host, endpoint.port
        return None

    def voters_at(self, end_offset: int) -> tuple[int, Voters | None]:
        """(kraft.version, voters) for a snapshot that ends at this offset."""
        return self._history.at(end_offset)

    def snapshot_id(self, end_offset: int) -> SnapshotId:
        """The id of a snapshot that ends at this committed offset."""
        known = next((each for each in self.view.snapshots if each.end_offset == end_offset), None)
        return known or SnapshotId(end_offset, max(self.log.epoch_of(end_offset - 1), 0))

    # -- the log

    def append(self, batch: bytearray, epoch: int) -> int:
        """As the leader of `epoch`: append a batch; returns its end offset. `advanced` reports the commit.

        Raises NotController if this node does not lead this epoch, StorageFailed if it cannot be written.
        """
        if not self.is_leader or self.core.epoch != epoch:
            raise NotController(f"this node does not lead epoch {epoch} of the metadata quorum")
        staged = self.replicated.append_now(batch)
        self._broker.turn.wake(self.replicated.watchers)
        self.replicated.when_committed(Unstored(staged.last_offset + 1, partial(self._append_failed, epoch)))
        return staged.last_offset + 1

    def _append_failed(self, epoch: int) -> None:
        """The own log cannot be made durable: let a voter lead whose disk works."""
        if self._is_running and self.core.epoch == epoch:
            self.core.resign(self._now_ms())
            self._pump_soon()

    def append_voters(self, records: list[tuple[ControlType, Data]]) -> int:
        """As the leader: append control records that change the voters, which count at once."""
        batch = control_batch(records, self._clock.now_ms())
        end_offset = self.append(batch, self.core.epoch)
        self._apply_voters(batch)
        self._pump()
        return end_offset

    async def committed(self, end_offset: int, timeout_ms: int) -> None:
        """Wait until everything below is committed. NotController if this node ceases to lead before.

        Raises REQUEST_TIMED_OUT after `timeout_ms`.
        """
        if end_offset <= self.core.high_watermark:
            return
        wait = CommitWait(end_offset, asyncio.get_running_loop().create_future())
        self._waits.append(wait)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await wait.done
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the change is not committed yet") from None
        finally:
            self._waits.remove(wait)

    def _apply_voters(self, batch: Buffer) -> None:
        """Batches that were just appended may change the voters."""
        end_offset = self.log.written_offset
        changes = [each for each in voter_changes(batch) if each.offset < end_offset]
        for change in changes:
            change.apply(self._history)
        if changes:
            self.core.voters_changed(self._now_ms())

    def read_batches(self, offset: int, max_bytes: int) -> Promise[Sequence[memoryview]]:
        """Committed batches from the one that holds `offset` on, control batches included."""
        return self.replicated.load(self.log.read_batches(offset, max_bytes, self.core.high_watermark))

    def snapshot_written(self, snapshot: SnapshotId) -> None:
        """A new snapshot exists: drop the log that only followers far behind would need."""
        self._snapshots.written(snapshot)

    # -- events

    def stored(self, end_offset: int) -> bool:
        """The log is durable up to here: called by the replicated log."""
        if not self._is_running:
            return False
        advanced = self.core.stored(end_offset, self._now_ms())
        self._pump_soon()
        return advanced

    def truncated(self, end_offset: int) -> None:
        """The log on disk was truncated: called by the replicated log."""
        self.core.truncated(end_offset, self._now_ms())
        self._pump_soon()

    def answer(self, reply: T) -> MaybePromise[T]:
        """A reply to another node, once everything that it may reveal is durable.

        Raises BROKER_NOT_AVAILABLE after the stop: nothing is stored then, and a vote would be forgotten.
        """
        if not self._is_running:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "this node has left the metadata quorum")
        self._pump()
        if not self._queue and not self._is_blocked:
            return reply
        promise: Promise[T] = Promise()
        self._queue.append(_Release(promise, reply))
        return promise

    def _answered(self, sent: Send, reply: Reply) -> None:
        try:
            self.core.answered(sent, reply, self._now_ms())
        except BrokenLog as error:
            logger.critical("this node leaves the metadata quorum: %s", error)
            self._stop()
            return
        self._pump()

    def _send_failed(self, sent: Send, is_broken: bool) -> None:
        self.core.failed(sent, self._now_ms(), is_broken=is_broken)
        self._pump()

    def _unsupported(self, sent: Send) -> None:
        self.core.unsupported(sent, self._now_ms())
        self._pump()

    def _ticked(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        self.core.ticked(self._now_ms())
        self._pump()

    # -- carrying out what the core decided

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._timers.call_later(0, self._pump)

    def _pump(self) -> None:
        if self._is_pumping or not self._is_running:
            return
        self._is_pumping = True
        try:
            while True:
                self._queue.extend(self.core.take())
                if self._is_blocked or not self._queue:
                    break
                step = self._queue.popleft()
                if isinstance(step, _Release):
                    step.promise.resolve(step.value)
                else:
                    self._carry_out(step)
        finally:
            self._is_pumping = False
        self._set_timer()

    def _carry_out(self, output: Output) -> None:
        match output:
            case StoreState(state):
                if not self._is_superseded():
                    self._store(state)
            case Send():
                self._channels.send(output)
            case Lead(epoch, granting):
                self._lead(epoch, granting)
            case Follow(epoch, leader_id):
                self._follow(epoch, leader_id)
            case Append(records, epoch):
                self._append_copies(records, epoch)
            case Truncate(offset):
                self._is_blocked = True
                self.log.truncate_later(offset, self._truncated)
            case WritePage():
                self._receive(output)
            case Advanced(high_watermark):
                self._advanced(high_watermark)

    def _is_superseded(self) -> bool:
        """Is another state to be stored before anything depends on this one?"""
        for step in self._queue:
            if not isinstance(step, Follow):
                return isinstance(step, StoreState)
        return False

    def _store(self, state: ElectionState) -> None:
        """Make quorum-state durable; no other output is carried out before."""
        self._is_blocked = True
        data = encode_state(state, self._history.kraft_version, self._history.current.ids)
        write = Job(lambda: self._files.write(QUORUM_STATE, data))
        self._disk.run_blocking(write).add_done_callback(partial(self._state_stored, state))

    def _state_stored(self, state: ElectionState, done: "asyncio.Future[None]") -> None:
        if done.cancelled() or not self._is_running:
            return
        error = done.exception()
        if error is None:
            self._is_blocked = False
            self._pump()
        elif isinstance(error, StorageFailed):
            if not self.is_unwritable:
                logger.error("quorum-state cannot be stored, so this node is silent: %s", error)
                self.is_unwritable = True
                self._listener.leader_changed(NO_LEADER, self.core.epoch)
            self._timers.call_later(STORE_RETRY_MS, lambda: self._store(state))
        else:
            raise error

    def _lead(self, epoch: int, granting: tuple[int, ...]) -> None:
        if self.core.leader is None or self.core.epoch != epoch:
            return
        change = leader_change(self.core.node.id, self._history.current.ids, granting)
        records: list[tuple[ControlType, Data]] = [(ControlType.LEADER_CHANGE, change)]
        batch = control_batch(records + self.voter_changes.of_new_leader(), self._clock.now_ms())
        try:
            self.replicated.become_leader(self._replica)
            self.replicated.append_now(batch)
            self._apply_voters(batch)
        except ApiError as error:
            logger.error("this node cannot lead the metadata quorum: %s", error)
            self.is_unwritable = True
            self.core.resign(self._now_ms())
            return
        # A voter that searched for the leader may already wait for records.
        self._broker.turn.wake(self.replicated.watchers)
        logger.info("this node leads the metadata quorum in epoch %d", epoch)
        self.is_unwritable = False
        self._listener.leader_changed(self.core.node.id, epoch)

    def _follow(self, epoch: int, leader_id: int) -> None:
        if self.replicated.is_leader:
            self.replicated.become_follower(self._replica)
        else:
            self._broker.turn.wake(self.replicated.watchers)
        # A sync that began in an earlier epoch does not count.
        self.replicated.commit_stored()
        for wait in self._waits:
            wait.fail(NotController(f"this node no longer leads the metadata quorum in epoch {epoch}"))
        self._listener.leader_changed(leader_id, epoch)
        if leader_id >= 0:
            self._handed_over.set()

    def _append_copies(self, records: memoryview, epoch: int) -> None:
        try:
            self.log.stage(records, epoch, self._clock.now_ms(), Origin.REPLICA)
            self.log.write_staged()
        except ApiError as error:
            if not self.is_unwritable:
                logger.error("records of the metadata leader cannot be appended: %s", error)
            self.is_unwritable = True
            self.core.append_failed(self._now_ms())
            return
        self.is_unwritable = False
        self._apply_voters(records)
        self.core.appended(self._now_ms())
        self.replicated.commit_stored()

    def _truncated(self, error: ApiError | None) -> None:
        self._is_blocked = False
        if error is None:
            self.core.appended(self._now_ms())
        else:
            logger.error("the metadata log cannot be truncated as its leader requires: %s", error)
            self.core.append_failed(self._now_ms())
        self._pump()

    def _advanced(self, high_watermark: int) -> None:
        self.replicated.advance()
        for wait in self._waits:
            wait.advanced(high_watermark)
        self._listener.advanced(high_watermark)
        leader, epoch = self.core.leader, self.core.epoch
        is_elected = leader is not None and leader.high_watermark > leader.start_offset
        if is_elected and self._announced_epoch < epoch:
            self._announced_epoch = epoch
            self._listener.elected(epoch)

    def _receive(self, page: WritePage) -> None:
        self._is_blocked = True
        self._broker.run(self._snapshots.receive(page)).on_settled(self._received)

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        """The log was replaced by a snapshot of the leader."""
        self.core.snapshot_installed(snapshot, self._now_ms())
        self._listener.snapshot_installed(snapshot)

    def _received(self, outcome: "Exception | None") -> None:
        self._is_blocked = False
        if outcome is None:
            self.core.appended(self._now_ms())
        else:
            logger.error("the snapshot of the metadata leader cannot be stored: %s", outcome)
            self.core.append_failed(self._now_ms())
        self._pump()

    # -- time

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _set_timer(self) -> None:
        wake_ms = self.core.wake_ms
        if wake_ms < self._timer_ms and self._is_running:
            self._cancel_timer()
            self._timer_ms = wake_ms
            self._timer = self._timers.call_later(max(0, wake_ms - self._now_ms()), self._ticked)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, NEVER_MS


def _is_sole_voter(membership: Membership) -> bool:
    """Does no other node have the metadata, according to the settings?"""
    return membership.configured.ids == [membership.node.id]
