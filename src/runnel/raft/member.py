"""The state of a member of the metadata quorum, and its transitions.

                       ┌──────── a majority would not ────────┐
                       ▼                                      │
    start ──▶ Unattached ── election timeout ──▶ Prospective ─┘    pre-vote, in the same epoch
              ▲    │   ▲                          ▲  │    │
              │    │   └ higher epoch: from all   │  │    │ a majority would
              │    │ leader known                 │  │    ▼
              │    ▼     ┌── leader still known ──│──┘ Candidate   epoch + 1, votes for itself
              │  Follower ── fetch timeout ───────┘       │
              │                                           │ a majority voted for it
          epoch + 1                                       ▼
              └────── Resigned ◀── no majority fetches ─ Leader
                                   or the node stops

Observers are Unattached or Followers only. A member in any role becomes Follower when the leader of its
epoch, or of a higher one, is reported to it. Everything that changes the role is in this file.
"""

from collections.abc import Callable, Sequence

from runnel.model.ids import NO_LEADER
from runnel.raft.in_flight import InFlightRequests
from runnel.raft.leader import Leader
from runnel.raft.roles import Ballot, Candidate, Follower, Prospective, Resigned, Role, Unattached
from runnel.raft.values import (
    Advanced,
    ElectionState,
    Endpoint,
    Follow,
    Lead,
    LogView,
    Output,
    Peer,
    QuorumTiming,
    ReplicaKey,
    Reply,
    StoreState,
)
from runnel.raft.voters import Voter, VoterHistory

NEVER_MS = 2**62

EPOCH_REACHED_MAX = 2**30
"""More elections than this cannot have been held: one per second would take 34 years."""
EPOCH_STEP_MAX = 2**20
"""Elections that a member may have missed, whatever its own epoch is."""


class Member:
    """A voter or an observer: its role, and the outputs for its driver."""

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
        self.node = node
        self.endpoints = endpoints
        """The addresses of this node for other members."""
        self.listener = listener
        """The name of the listener by which members address each other."""
        self.timing = timing
        self.log = log
        self.history = history
        self.bootstrap = tuple(bootstrap)
        self.draw = draw
        """A random number below its argument."""
        self.can_vote = can_vote
        """False for nodes that are brokers only: they never vote, even if the voter set contains them."""
        self.joins = joins
        """Does this controller add itself to the voters of a dynamic quorum?"""
        self.role: Role = Unattached(0, NEVER_MS)
        self.high_watermark = 0
        """Everything below is committed, as far as this node knows."""
        self.durable_offset = 0
        """Everything below survives a power failure of this node."""
        self.may_be_wiped = False
        """Has this node neither a log nor voted? It is new, or its directory was emptied."""
        self.in_flight = InFlightRequests()
        self.outputs: list[Output] = []
        self._stored = ElectionState()
        self._reported = (NO_LEADER, 0)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """May this node become a candidate?

        Also while a VotersRecord that removes it may not be committed: it may have the only log with it,
        and then the others cannot be elected without it (Raft dissertation, section 4.2.2).
        """
        history = self.history
        is_being_removed = history.last_change_offset >= self.high_watermark and self.node in history.previous
        return self.can_vote and (self.node in history.current or is_being_removed)

    @property
    def is_sole_voter(self) -> bool:
        return self.can_vote and self.history.current.is_sole(self.node)

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses of the leader; empty if there is none."""
        role = self.role
        if isinstance(role, Leader | Resigned):
            return self.endpoints
        return role.endpoints if isinstance(role, Follower | Prospective) else ()

    @property
    def own_voter(self) -> Voter:
        """This node as a voter set describes it."""
        return Voter(self.node, self.endpoints)

    def is_self(self, key: ReplicaKey) -> bool:
        """Is this the key of this node? An unset directory id is not compared."""
        return is_same(key, self.node)

    def is_credible(self, epoch: int) -> bool:
        """Can elections have led to this epoch?

        One that is adopted is never left: beyond the largest int32, no leader could be elected.
        """
        return epoch <= max(self.epoch, EPOCH_REACHED_MAX) + EPOCH_STEP_MAX

    def election_timeout_ms(self) -> int:
        """A random timeout, so that voters rarely become candidates at the same time."""
        return self.timing.election_timeout_ms + self.draw(self.timing.election_timeout_ms)

    # -- transitions

    def start(self, state: ElectionState | None, now_ms: int) -> None:
        """Start with the stored state; None for a new member."""
        self._stored = known = state or ElectionState()
        self.may_be_wiped = self.log.end_offset == 0 and known.voted is None
        epoch = max(known.epoch, self.log.last_epoch)
        deadline_ms = now_ms + self.election_timeout_ms()
        if epoch > known.epoch:
            self._enter(Unattached(epoch, deadline_ms))
        elif known.leader_id == self.node.id and self.is_voter:
            # It may have written to the log in this epoch, and must not write other records in it.
            others = self.history.current.others(self.node)
            candidates = tuple(voter.key for voter in others)
            unacknowledged = {voter.key.id for voter in others}
            if self.is_sole_voter:
                deadline_ms = now_ms
            self._enter(Resigned(epoch, deadline_ms, self.node.id, candidates, unacknowledged, known.voted))
        elif known.voted is not None and self.is_self(known.voted) and self.is_voter:
            self._enter(Candidate(epoch, deadline_ms, self._ballot(), known.voted))
        else:
            self._enter(Unattached(epoch, deadline_ms, known.leader_id, known.voted))
            if known.leader_id not in (NO_LEADER, self.node.id):
                self.become_follower(epoch, known.leader_id, (), now_ms)

    def become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_LEADER) -> None:
        """Wait in this epoch, which is at least the current one, for a leader or the election timeout."""
        role = self.role
        voted = role.voted if epoch == role.epoch else None
        if isinstance(role, Leader | Resigned):
            deadline_ms = now_ms + self.election_timeout_ms()
        else:
            # A candidate that cannot win must not keep this node from becoming one.
            deadline_ms = min(role.deadline_ms, now_ms + 2 * self.timing.election_timeout_ms)
        self._enter(Unattached(epoch, deadline_ms, leader_id, voted))

    def grant_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for a candidate in this epoch, and wait for the outcome until the election timeout."""
        self.may_be_wiped = False
        self._enter(Unattached(self.epoch, now_ms + self.election_timeout_ms(), NO_LEADER, candidate))

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int
    ) -> None:
        """Follow the leader of this epoch, which is at least the current one, if its address is known."""
        voter = self.history.current.get(leader_id)
        known = endpoints or (voter.endpoints if voter is not None else ())
        role = self.role
        is_followed = isinstance(role, Follower) and (epoch, leader_id) == (role.epoch, role.leader_id)
        if leader_id == self.node.id or not known:
            if not is_followed and (epoch, leader_id) != (role.epoch, role.leader_id):
                self.become_unattached(epoch, now_ms, leader_id)
        elif isinstance(role, Follower) and is_followed:
            role.endpoints = known
        else:
            voted = role.voted if epoch == role.epoch else None
            deadline_ms = now_ms + self.timing.fetch_timeout_ms
            self._enter(Follower(epoch, deadline_ms, leader_id, known, voted))

    def become_prospective(self, now_ms: int) -> None:
        """Ask the other voters whether they would vote for this node (pre-vote)."""
        role = self.role
        deadline_ms = now_ms + self.election_timeout_ms()
        ballot, endpoints = self._ballot(), self.leader_endpoints
        self._enter(Prospective(role.epoch, deadline_ms, ballot, role.leader_id, endpoints, role.voted))

    def end_pre_vote(self, now_ms: int) -> None:
        """The pre-vote is lost: follow the leader again, or wait for one."""
        role = self.role
        assert isinstance(role, Prospective)
        deadline_ms = now_ms + self.election_timeout_ms()
        if role.endpoints:
            fetch_deadline_ms = now_ms + self.timing.fetch_timeout_ms
            self._enter(Follower(role.epoch, fetch_deadline_ms, role.leader_id, role.endpoints, role.voted))
        else:
            self._enter(Unattached(role.epoch, deadline_ms, role.leader_id, role.voted))

    def become_candidate(self, now_ms: int) -> None:
        """Begin a new epoch and vote for this node."""
        self.may_be_wiped = False
        deadline_ms = now_ms + self.election_timeout_ms()
        self._enter(Candidate(self.epoch + 1, deadline_ms, self._ballot(), self.node))

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch: a majority has voted for this node."""
        role = self.role
        assert isinstance(role, Candidate)
        check_ms = self.timing.check_quorum_ms
        leader = Leader(
            self.node,
            role.epoch,
            self.log.end_offset,
            self.history.current,
            check_ms,
            now_ms + check_ms,
        )
        self._enter(leader)
        self.outputs.append(Lead(role.epoch, tuple(sorted(role.ballot.granted))))

    def resign(self, now_ms: int) -> None:
        """Stop leading this epoch."""
        role = self.role
        assert isinstance(role, Leader)
        deadline_ms = now_ms + self.election_timeout_ms()
        unacknowledged = set(role.replicas)
        self._enter(Resigned(role.epoch, deadline_ms, self.node.id, role.successors(), unacknowledged))

    def maybe_transition(self, reply: Reply, now_ms: int) -> bool:
        """Follow a leader, or adopt a higher epoch, that a reply reports; False if the reply is ignored."""
        if reply.epoch < self.epoch or not self.is_credible(reply.epoch):
            return False
        is_newer = reply.epoch > self.epoch
        if reply.leader_id != NO_LEADER and (is_newer or self.role.leader_id == NO_LEADER):
            self.become_follower(reply.epoch, reply.leader_id, reply.endpoints, now_ms)
        elif is_newer:
            self.become_unattached(reply.epoch, now_ms)
        elif isinstance(self.role, Unattached) and self.role.leader_id == reply.leader_id != NO_LEADER:
            # The leader was known, its address was not.
            self.become_follower(reply.epoch, reply.leader_id, reply.endpoints, now_ms)
        return True

    def advance(self, high_watermark: int) -> bool:
        """Advance the high watermark; False if it is not higher."""
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.outputs.append(Advanced(high_watermark))
        return True

    def _ballot(self) -> Ballot:
        voters = self.history.current
        return Ballot(frozenset(voters.ids), {self.node.id} if self.node in voters else set())

    def _enter(self, role: Role) -> None:
        assert role.epoch >= self.role.epoch, "epochs only grow"
        self.role = role
        self.in_flight.clear()
        state = ElectionState(role.epoch, role.leader_id, role.voted)
        if state != self._stored:
            self._stored = state
            self.outputs.append(StoreState(state))
        leader_id = NO_LEADER if isinstance(role, Resigned) else role.leader_id
        if (leader_id, role.epoch) != self._reported:
            self._reported = (leader_id, role.epoch)
            if not isinstance(role, Leader):
                self.outputs.append(Follow(role.epoch, leader_id))


def is_same(key: ReplicaKey, other: ReplicaKey) -> bool:
    """Are both keys of the same replica? An unset directory id is not compared."""
    return key.id == other.id and key.directory_id in (bytes(16), other.directory_id)
