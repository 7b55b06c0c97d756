"""A quorum in memory: cores that exchange messages which are lost, repeated, delayed and reordered.

Nodes crash, and restart with what was durable. After every event, `Invariants` must hold.
"""

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random

from runnel.model.errors import ErrorCode
from runnel.model.ids import SnapshotId
from runnel.raft.leader import Leader
from runnel.raft.quorum import Quorum
from runnel.raft.values import (
    AddVoter,
    Advanced,
    Append,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    Endpoint,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Follow,
    Lead,
    Output,
    Peer,
    QuorumTiming,
    RemoveVoter,
    ReplicaKey,
    Reply,
    Request,
    Send,
    SnapshotReply,
    StoreState,
    Truncate,
    UpdateVoter,
    Vote,
    VoteReply,
    WritePage,
)
from runnel.raft.voters import Voter, VoterHistory, Voters
from tests.raft.memory_log import Entries, Entry, MemoryLog

LISTENER = "CONTROLLER"
TIMING = QuorumTiming()
ENTRIES_PER_FETCH = 5
PAGE_BYTES = 24
FETCH_WAIT_MS = 60


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, node_id.to_bytes(16))


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), (Endpoint(LISTENER, f"node{node_id}", 1),))


class Node:
    """A member: its core while it runs, and what it stored."""

    def __init__(self, node_id: int, cluster: "Cluster") -> None:
        self.id = node_id
        self.cluster = cluster
        self.log = MemoryLog()
        self.state: ElectionState | None = None
        self.core: Quorum | None = None
        self.incarnation = 0
        self._queue: deque[Output | Callable[[], None]] = deque()
        self._is_storing = False
        self._is_syncing = False
        self._pages: bytes = b""
        self._wake_ms = -1

    # -- life

    def start(self) -> None:
        self.incarnation += 1
        cluster = self.cluster
        history = VoterHistory(Voters() if cluster.is_dynamic else cluster.first_voters)
        self._read_voters(history)
        self.core = Quorum(
            key(self.id),
            voter(self.id).endpoints,
            LISTENER,
            TIMING,
            self.log,
            history,
            cluster.random.randrange,
            bootstrap=[Peer(-2 - each, f"node{each}", 1) for each in cluster.first_voters.ids],
        )
        committed = self.log.snapshots[0].end_offset if self.log.images else 0
        self.core.restore(committed, self.log.durable_offset)
        self.core.start(self.state, cluster.now_ms)
        self.pump()

    def crash(self) -> None:
        """Lose everything that was not durable, in part."""
        self.core = None
        self._queue.clear()
        self._is_storing = self._is_syncing = False
        self.cluster.disconnected(self)
        self.log = self.log.crashed(self.cluster.random.randrange(4))

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Act later, unless this node crashes before."""
        incarnation = self.incarnation

        def perform() -> None:
            if self.core is not None and self.incarnation == incarnation:
                act()
                self.pump()

        self.cluster.at(delay_ms, perform)

    # -- carrying out

    def pump(self) -> None:
        assert self.core is not None
        while True:
            self._queue.extend(self.core.take())
            if self._is_storing or not self._queue:
                break
            step = self._queue.popleft()
            if callable(step):
                step()
            else:
                self._carry_out(step, self.core)
        if self.core.wake_ms != self._wake_ms:
            self._wake_ms = self.core.wake_ms
            delay_ms = max(0, self.core.wake_ms - self.cluster.now_ms)
            self.later(delay_ms, self._tick)

    def reply_when_stored(self, act: Callable[[], None]) -> None:
        assert self.core is not None
        self._queue.extend(self.core.take())
        self._queue.append(act)
        self.pump()

    def _tick(self) -> None:
        assert self.core is not None
        self._wake_ms = -1
        self.core.ticked(self.cluster.now_ms)

    def _carry_out(self, output: Output, core: Quorum) -> None:
        now_ms = self.cluster.now_ms
        match output:
            case StoreState(state):
                self._is_storing = True
                self.later(self.cluster.random.randrange(1, 15), lambda: self._stored(state))
            case Send():
                self.cluster.send(self, output)
            case Lead(epoch):
                if isinstance(core.role, Leader) and core.epoch == epoch:
                    self.append(epoch)
            case Append(records, epoch):
                entries = self.cluster.entries.decode(records)
                assert all(entry.epoch <= epoch for entry in entries)
                self._appended(entries, core)
                core.appended(now_ms)
            case Truncate(offset):
                self.log.truncate_to(offset)
                core.truncated(offset, now_ms)
                core.appended(now_ms)
            case WritePage():
                self._write_page(output, core)
            case Advanced(offset):
                self.cluster.invariants.advanced(self, offset)
            case Follow():
                pass

    def _stored(self, state: ElectionState) -> None:
        self.state = state
        self._is_storing = False

    def _appended(self, entries: list[Entry], core: Quorum) -> None:
        for offset, entry in enumerate(entries, self.log.end_offset):
            if entry.voters is not None:
                core.history.voters_appended(offset, entry.voters)
        self.log.append(entries)
        if any(entry.voters is not None for entry in entries):
            core.voters_changed(self.cluster.now_ms)
        self._sync()

    def _sync(self) -> None:
        if self._is_syncing or self.log.durable_offset == self.log.end_offset:
            return
        self._is_syncing = True
        self.later(self.cluster.random.randrange(1, 30), lambda: self._synced(end_offset))
        end_offset = self.log.end_offset

    def _synced(self, end_offset: int) -> None:
        assert self.core is not None
        self._is_syncing = False
        self.log.durable_offset = max(self.log.durable_offset, min(end_offset, self.log.end_offset))
        self.core.stored(self.log.durable_offset, self.cluster.now_ms)
        self._sync()

    def _write_page(self, page: WritePage, core: Quorum) -> None:
        data = bytes(page.data)
        self._pages = data if page.position == 0 else self._pages + data
        if not page.is_last:
            core.appended(self.cluster.now_ms)
            return
        below = self.cluster.entries.decode(memoryview(self._pages))
        assert len(below) == page.snapshot.end_offset
        self.log.install(page.snapshot, below)
        self._read_voters(core.history)
        core.snapshot_installed(page.snapshot, self.cluster.now_ms)

    def _read_voters(self, history: VoterHistory) -> None:
        if self.cluster.is_dynamic:
            # The first voters are in the snapshot 0-0, from which a new log continues.
            history.restart(0, 1, self.cluster.first_voters)
            self.log.replay_voters(history)

    # -- what a client and the operator do

    def append(self, epoch: int, voters: Voters | None = None) -> None:
        assert self.core is not None
        self._appended([self.cluster.entries.create(epoch, voters)], self.core)

    def snapshot(self) -> None:
        core = self.core
        if core is not None and core.high_watermark > self.log.start_offset:
            self.log.take_snapshot(core.high_watermark)

    # -- requests

    def handle(self, request: Request) -> Reply:
        core, now_ms = self.core, self.cluster.now_ms
        assert core is not None
        match request:
            case Vote():
                reply: Reply = core.vote_requested(request, now_ms)
            case BeginEpoch():
                reply = core.epoch_begun(request, now_ms)
            case EndEpoch():
                reply = core.epoch_ended(request, now_ms)
            case Fetch():
                reply = core.fetch_requested(request, now_ms)
                self._add_records(request, reply)
            case FetchSnapshot():
                reply = self._page(request, core.snapshot_requested(request, now_ms))
            case UpdateVoter() | AddVoter() | RemoveVoter():
                reply = Reply(ErrorCode.NONE, core.epoch)
        return reply

    def _add_records(self, fetch: Fetch, reply: Reply) -> None:
        assert isinstance(reply, FetchReply)
        if reply.error is ErrorCode.NONE and reply.diverging is None and reply.snapshot is None:
            reply.records = self.cluster.entries.encode(self.log.read(fetch.offset, ENTRIES_PER_FETCH))

    def _page(self, fetch: FetchSnapshot, reply: Reply) -> SnapshotReply:
        page = SnapshotReply(reply.error, reply.epoch, reply.leader_id, reply.endpoints, fetch.snapshot)
        below = self.log.images.get(fetch.snapshot)
        if below is None:
            page.error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif reply.error is ErrorCode.NONE:
            data = self.cluster.entries.encode(below)
            page.size_bytes, page.position = len(data), fetch.position
            page.data = data[fetch.position : fetch.position + PAGE_BYTES]
        return page


class Invariants:
    """What must hold after every event."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.committed: list[Entry] = []
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], ReplicaKey] = {}
        self._epochs: dict[int, int] = {}
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def check(self) -> None:
        for node in self._cluster.nodes.values():
            core = node.core
            if core is None:
                continue
            if isinstance(core.role, Leader):
                leader = self._leaders.setdefault(core.epoch, node.id)
                assert leader == node.id, f"epoch {core.epoch} is led by {leader} and {node.id}"
            assert core.high_watermark >= self._high_watermarks.get((node.id, node.incarnation), 0)
            self._high_watermarks[node.id, node.incarnation] = core.high_watermark
            assert core.epoch >= self._epochs.get(node.id, 0), f"{node.id} returned to epoch {core.epoch}"

    def revealed(self, node: Node, epoch: int) -> None:
        """A node sent a message: a restart must not take it back to an earlier epoch."""
        self._epochs[node.id] = max(epoch, self._epochs.get(node.id, 0))

    def voted(self, node: Node, vote: Vote) -> None:
        if vote.is_pre_vote:
            return
        earlier = self._votes.setdefault((node.id, vote.epoch), vote.candidate)
        assert earlier == vote.candidate, f"{node.id} voted for {earlier} and {vote.candidate}"

    def advanced(self, node: Node, high_watermark: int) -> None:
        """What is committed is the same everywhere, and on a majority."""
        below = node.log.all_below(high_watermark)
        assert len(below) == high_watermark, f"{node.id} committed what it does not have"
        known = len(self.committed)
        assert below[:known] == self.committed[:high_watermark], f"{node.id} committed something else"
        if high_watermark > known:
            self.committed = below
            last = high_watermark - 1
            core = node.core
            assert core is not None
            holders = [
                each
                for each in core.history.current.ids
                if self._cluster.nodes[each].log.durable_offset > last
                and self._cluster.nodes[each].log.all_below(high_watermark)[last] == below[last]
            ]
            assert len(holders) >= core.history.current.majority, f"{last} is only on {holders}"


class Cluster:
    """The nodes, the network between them, and time."""

    def __init__(self, seed: int, size: int, observers: int = 0, *, is_dynamic: bool = False) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.entries = Entries()
        self.is_dynamic = is_dynamic
        self.first_voters = Voters(voter(node_id) for node_id in range(1, size + 1))
        self.nodes = {node_id: Node(node_id, self) for node_id in range(1, size + observers + 1)}
        self.invariants = Invariants(self)
        self.loss = self.repeats = 0.0
        self.delay_max_ms = 10
        self.cut: set[tuple[int, int]] = set()
        """Directed pairs of nodes between which messages are lost."""
        self._in_flight: list[tuple[Node, Node, Send]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        for node in self.nodes.values():
            node.start()

    def at(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), act))

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; True as soon as the condition holds."""
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
            self.invariants.check()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    def leader(self) -> Node | None:
        """The leader of the newest epoch."""
        leaders = [n for n in self.nodes.values() if n.core is not None and isinstance(n.core.role, Leader)]
        return max(leaders, key=lambda node: node.core.epoch if node.core else 0, default=None)

    # -- the network

    def send(self, node: Node, sent: Send) -> None:
        self.invariants.revealed(node, sent.request.epoch - getattr(sent.request, "is_pre_vote", 0))
        target = self.nodes[int(sent.peer.host.removeprefix("node"))]
        if target.core is None:
            # The connection is refused.
            node.later(1, lambda: self._failed(node, sent, is_broken=True))
            return
        self._in_flight.append((node, target, sent))
        node.later(self.delay_max_ms * 100, lambda: self._failed(node, sent, is_broken=False))
        for _ in range(2 if self.random.random() < self.repeats else 1):
            if not self._is_lost(node.id, target.id):
                self.at(self._delay_ms(), lambda: self._deliver(node, node.incarnation, target, sent))

    def disconnected(self, crashed: Node) -> None:
        """The connections of a node that crashed break, unless the network is partitioned."""
        broken = [each for each in self._in_flight if each[1] is crashed]
        self._in_flight = [each for each in self._in_flight if each[1] is not crashed]
        for source, _, sent in broken:
            if source.core is not None and (crashed.id, source.id) not in self.cut:
                source.later(1, partial(self._failed, source, sent, is_broken=True))

    def _failed(self, node: Node, sent: Send, *, is_broken: bool) -> None:
        assert node.core is not None
        self._ended(sent)
        node.core.failed(sent, self.now_ms, is_broken=is_broken)

    def _deliver(self, source: Node, incarnation: int, target: Node, sent: Send) -> None:
        if target.core is None:
            return
        reply = target.handle(sent.request)
        epoch, request = reply.epoch, sent.request
        if isinstance(reply, VoteReply) and isinstance(request, Vote) and reply.is_granted:
            self.invariants.voted(target, request)
        target.reply_when_stored(lambda: self._answer(source, incarnation, target, sent, reply, epoch))

    def _answer(
        self, source: Node, incarnation: int, target: Node, sent: Send, reply: Reply, epoch: int
    ) -> None:
        self.invariants.revealed(target, epoch)
        if self._is_lost(target.id, source.id):
            return

        def arrive() -> None:
            self._ended(sent)
            if source.core is not None and source.incarnation == incarnation:
                source.core.answered(sent, reply, self.now_ms)
                source.pump()

        delay_ms = self._delay_ms()
        if isinstance(reply, FetchReply) and not len(reply.records):
            # Such a fetch waits at the leader for more.
            delay_ms += FETCH_WAIT_MS
        self.at(delay_ms, arrive)

    def _ended(self, sent: Send) -> None:
        self._in_flight = [each for each in self._in_flight if each[2] is not sent]

    def _is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cut or self.random.random() < self.loss

    def _delay_ms(self) -> int:
        return self.random.randrange(1, self.delay_max_ms + 1)


def wait_for_progress(cluster: Cluster, duration_ms: int = 20_000) -> None:
    """With all nodes connected, a new record must be committed by all."""
    cluster.loss = cluster.repeats = 0.0
    cluster.cut.clear()
    cluster.delay_max_ms = 10
    for node in cluster.nodes.values():
        if node.core is None:
            node.start()
    assert cluster.run(duration_ms, lambda: cluster.leader() is not None), "no leader is elected"
    wanted = len(cluster.invariants.committed) + 3

    def append() -> None:
        leader = cluster.leader()
        if leader is not None and leader.core is not None and leader.log.end_offset < wanted:
            leader.append(leader.core.epoch)
        cluster.at(20, append)

    def is_done() -> bool:
        return all(node.core and node.core.high_watermark >= wanted for node in cluster.nodes.values())

    cluster.at(0, append)
    assert cluster.run(duration_ms, is_done), "a connected quorum makes no progress"


def snapshot_ids(cluster: Cluster) -> list[SnapshotId]:
    """The snapshots of all nodes."""
    return [snapshot for node in cluster.nodes.values() for snapshot in node.log.snapshots]
