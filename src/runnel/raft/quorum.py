"""One member of the metadata quorum: KRaft (KIP-595, 853, 996) without I/O.

Events are passed in by calls. `take` returns the outputs, in the order in which they must be carried out:
in particular, nothing that reveals an epoch or a vote may leave this node before that is stored. Time is an
argument, in milliseconds of a monotonic clock; `wake_ms` is when `ticked` must be called next.

The parts: `member` has the state and its transitions, `polling` what is due in each role, `requests` and
`replies` the communication with other members, `leader` what is committed.
"""

from collections.abc import Callable, Sequence

from runnel.model.ids import NO_LEADER, SnapshotId
from runnel.raft.in_flight import Lane
from runnel.raft.leader import Leader
from runnel.raft.member import Member
from runnel.raft.polling import Polling
from runnel.raft.replies import Replies
from runnel.raft.requests import Requests
from runnel.raft.roles import Follower, Resigned, Role
from runnel.raft.values import (
    BeginEpoch,
    ElectionState,
    EndEpoch,
    Endpoint,
    Fetch,
    FetchReply,
    FetchSnapshot,
    LogView,
    Output,
    Peer,
    QuorumTiming,
    ReplicaKey,
    Reply,
    Send,
    Vote,
    VoteReply,
)
from runnel.raft.voter_changes import VoterChanges
from runnel.raft.voters import VoterHistory


class Quorum:
    """A voter or an observer of the quorum."""

    def __init__(
        self,
        node: ReplicaKey,
        endpoints: tuple[Endpoint, ...],
        listener: str,
        timing: QuorumTiming,
        log: LogView,
        history: VoterHistory,
        draw: Callable[[int], int],
        *,
        bootstrap: Sequence[Peer] = (),
        can_vote: bool = True,
        joins: bool = False,
    ) -> None:
        self._member = Member(
            node,
            endpoints,
            listener,
            timing,
            log,
            history,
            draw,
            bootstrap=bootstrap,
            can_vote=can_vote,
            joins=joins,
        )
        self._polling = Polling(self._member)
        self._requests = Requests(self._member)
        self._replies = Replies(self._member, self._polling)
        self.changes = VoterChanges(self._member)
        """Decides about changes of the voter set."""

    @property
    def node(self) -> ReplicaKey:
        return self._member.node

    @property
    def role(self) -> Role:
        return self._member.role

    @property
    def epoch(self) -> int:
        return self._member.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, or -1; a leader that resigned is none."""
        role = self._member.role
        return NO_LEADER if isinstance(role, Resigned) else role.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses of the leader, as far as they are known."""
        return self._member.leader_endpoints

    @property
    def leader(self) -> Leader | None:
        """What only the leader knows; None if this node does not lead."""
        role = self._member.role
        return role if isinstance(role, Leader) else None

    @property
    def has_fetched(self) -> bool:
        """Has the leader of this epoch answered a fetch of this node?"""
        role = self._member.role
        return isinstance(role, Follower) and role.has_fetched

    @property
    def is_voter(self) -> bool:
        return self._member.is_voter

    @property
    def history(self) -> VoterHistory:
        """The voter sets in the log."""
        return self._member.history

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this node knows."""
        return self._member.high_watermark

    @property
    def wake_ms(self) -> int:
        """When `ticked` must be called."""
        return self._polling.wake_ms

    def take(self) -> list[Output]:
        """The outputs since the last call, to be carried out in this order."""
        outputs, self._member.outputs = self._member.outputs, []
        return outputs

    def restore(self, high_watermark: int, durable_offset: int) -> None:
        """Before the start: what of the local log is known to be committed, and durable."""
        self._member.high_watermark = high_watermark
        self._member.durable_offset = durable_offset

    def start(self, state: ElectionState | None, now_ms: int) -> None:
        """Start with the stored state; None for a new member."""
        self._member.start(state, now_ms)
        self._polling.run(now_ms)

    # -- time and the local log

    def ticked(self, now_ms: int) -> None:
        """Time has passed."""
        self._polling.run(now_ms)

    def stored(self, end_offset: int, now_ms: int) -> bool:
        """The local log is durable up to here; True if the high watermark advanced."""
        member, role = self._member, self._member.role
        member.durable_offset = end_offset
        advanced = False
        if isinstance(role, Leader):
            advanced = role.stored(end_offset) and member.advance(role.high_watermark)
        elif isinstance(role, Follower):
            # This node has not fetched meanwhile, so that the leader could not answer.
            role.deadline_ms = max(role.deadline_ms, now_ms + member.timing.fetch_timeout_ms // 2)
            advanced = self._replies.follow_high_watermark(role)
        self._polling.run(now_ms)
        return advanced

    def appended(self, now_ms: int) -> None:
        """What the leader sent is appended, or the log is truncated as it requires."""
        role = self._member.role
        if isinstance(role, Follower):
            role.is_appending = False
            self._replies.follow_high_watermark(role)
        self._polling.run(now_ms)

    def append_failed(self, now_ms: int) -> None:
        """What the leader sent could not be stored; it is fetched again after a backoff."""
        member, role = self._member, self._member.role
        if isinstance(role, Follower):
            role.is_appending, role.snapshot = False, None
            self._replies.leader_answered(role, now_ms)
            for peer in member.in_flight.peers(Lane.FETCH):
                member.in_flight.slot(peer, Lane.FETCH).ready_ms = (
                    now_ms + member.timing.fetch_timeout_ms // 4
                )
        self._polling.run(now_ms)

    def truncated(self, end_offset: int, now_ms: int) -> None:
        """The local log ends here now: by a Truncate output, or because the disk lost records."""
        member = self._member
        member.history.truncated(end_offset)
        member.durable_offset = min(member.durable_offset, end_offset)
        if isinstance(member.role, Leader):
            # Others may have fetched what is lost, and offsets must not be assigned twice in an epoch.
            member.resign(now_ms)
        self._polling.run(now_ms)

    def voters_changed(self, now_ms: int) -> None:
        """Records that were appended have extended the history of voters."""
        member, role = self._member, self._member.role
        if isinstance(role, Leader):
            role.voters_changed(member.history.current, now_ms)
            if role.commit():
                member.advance(role.high_watermark)
        elif isinstance(role, Follower):
            role.has_reported = False
        self._polling.run(now_ms)

    def snapshot_installed(self, snapshot: SnapshotId, now_ms: int) -> None:
        """The log was replaced by this snapshot of the leader."""
        member, role = self._member, self._member.role
        member.durable_offset = snapshot.end_offset
        member.advance(snapshot.end_offset)
        if isinstance(role, Follower):
            role.snapshot, role.is_appending = None, False
            self._replies.leader_answered(role, now_ms)
        self._polling.run(now_ms)

    def resign(self, now_ms: int) -> None:
        """Stop leading: the node stops, or cannot write to its log."""
        if isinstance(self._member.role, Leader):
            self._member.resign(now_ms)
        self._polling.run(now_ms)

    # -- requests of other members

    def vote_requested(self, vote: Vote, now_ms: int) -> VoteReply:
        """A candidate requests this node's vote."""
        reply = self._requests.vote(vote, now_ms)
        self._polling.run(now_ms)
        return reply

    def epoch_begun(self, begin: BeginEpoch, now_ms: int) -> Reply:
        """A leader announces itself."""
        reply = self._requests.begin_epoch(begin, now_ms)
        self._polling.run(now_ms)
        return reply

    def epoch_ended(self, end: EndEpoch, now_ms: int) -> Reply:
        """A leader resigns."""
        reply = self._requests.end_epoch(end, now_ms)
        self._polling.run(now_ms)
        return reply

    def fetch_requested(self, fetch: Fetch, now_ms: int) -> FetchReply:
        """A replica fetches. The caller adds records if there is no error, divergence or snapshot."""
        reply = self._requests.fetch(fetch, now_ms)
        self._polling.run(now_ms)
        return reply

    def snapshot_requested(self, fetch: FetchSnapshot, now_ms: int) -> Reply:
        """A replica fetches a page of a snapshot. The caller adds its bytes if there is no error."""
        reply = self._requests.fetch_snapshot(fetch, now_ms)
        self._polling.run(now_ms)
        return reply

    def leader_requested(self, epoch: int) -> Reply:
        """A member sent another request to the leader of this epoch: whether it may be answered."""
        return self._requests.reply(self._requests.check_follower(epoch))

    # -- replies of other members

    def answered(self, sent: Send, reply: Reply, now_ms: int) -> None:
        """A request was answered. Raises BrokenLog if the leader contradicts what is committed."""
        self._replies.answered(sent, reply, now_ms)
        self._polling.run(now_ms)

    def failed(self, sent: Send, now_ms: int, *, is_broken: bool) -> None:
        """A request failed; `is_broken` if the peer refused or closed the connection: its process ended."""
        self._replies.failed(sent, is_broken, now_ms)
        self._polling.run(now_ms)

    def unsupported(self, sent: Send, now_ms: int) -> None:
        """The peer does not support the request, or this version of it."""
        self._replies.unsupported(sent, now_ms)
        self._polling.run(now_ms)
