"""What a member does because of its role and the time: timeouts, and requests that are due."""

from runnel.model.ids import NO_LEADER
from runnel.raft.in_flight import Lane
from runnel.raft.leader import Leader
from runnel.raft.member import NEVER_MS, Member
from runnel.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from runnel.raft.values import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Endpoint,
    Fetch,
    FetchSnapshot,
    Peer,
    RemoveVoter,
    Request,
    Send,
    UpdateVoter,
    Vote,
)
from runnel.raft.voters import Voter

TRANSITIONS_MAX = 10
"""More in one step would be an endless loop."""
SEARCH_PATIENCE = 10
"""After this many retry backoffs without a reply, the next node is sent a fetch to find the leader."""


class Polling:
    """Sends the requests and makes the transitions that are due, and determines when to be called again."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.wake_ms = 0
        """When something is due next."""
        self._search_ms = 0
        """When the next fetch to find the leader may be sent."""

    def search_soon(self, now_ms: int) -> None:
        """A fetch to find the leader has ended: send the next one after a backoff."""
        self._search_ms = min(self._search_ms, now_ms + self._member.timing.retry_backoff_ms)

    def search_later(self, now_ms: int) -> None:
        """The leader cannot be reached: others need some time to elect the next one."""
        self._search_ms = max(self._search_ms, now_ms + 2 * self._member.timing.retry_backoff_ms)

    def run(self, now_ms: int) -> None:
        """Do all that is due."""
        for _ in range(TRANSITIONS_MAX):
            role = self._member.role
            self.wake_ms = NEVER_MS
            match role:
                case Unattached():
                    self._poll_unattached(role, now_ms)
                case Prospective():
                    self._poll_prospective(role, now_ms)
                case Candidate():
                    self._poll_candidate(role, now_ms)
                case Leader():
                    self._poll_leader(role, now_ms)
                case Resigned():
                    self._poll_resigned(role, now_ms)
                case Follower():
                    self._poll_follower(role, now_ms)
            if self._member.role is role:
                return
        raise AssertionError("the quorum changes its role endlessly")

    def _poll_unattached(self, role: Unattached, now_ms: int) -> None:
        member = self._member
        if member.is_voter and (self._is_over(role.deadline_ms, now_ms) or member.is_sole_voter):
            member.become_prospective(now_ms)
        else:
            self._search(now_ms)

    def _poll_prospective(self, role: Prospective, now_ms: int) -> None:
        member = self._member
        if role.ballot.is_won:
            member.become_candidate(now_ms)
        elif role.ballot.is_lost or self._is_over(role.deadline_ms, now_ms) or not member.is_voter:
            member.end_pre_vote(now_ms)
        else:
            self._ask_for_votes(role, now_ms)

    def _poll_candidate(self, role: Candidate, now_ms: int) -> None:
        member = self._member
        if role.ballot.is_won:
            member.become_leader(now_ms)
        elif self._is_over(role.deadline_ms, now_ms):
            member.become_prospective(now_ms)
        elif not role.ballot.is_lost:
            self._ask_for_votes(role, now_ms)

    def _poll_leader(self, role: Leader, now_ms: int) -> None:
        member = self._member
        is_alone = role.replicas and self._is_over(role.deadline_ms, now_ms)
        # Without a vote it leads only until that is committed.
        is_removed = not member.is_voter and role.high_watermark > member.history.last_change_offset
        if is_alone or is_removed:
            member.resign(now_ms)
            return
        if role.observers and self._is_over(role.expiry_ms, now_ms):
            role.expire_observers(now_ms)
        silent_ms = member.timing.fetch_timeout_ms // 2
        for voter in role.voters.others(member.node):
            peer = self._peer(voter.key.id, voter.endpoints)
            if peer is None:
                continue
            if role.is_silent(voter.key.id, now_ms, silent_ms):
                begin = BeginEpoch(role.epoch, member.node.id, voter.key, member.endpoints)
                self._send(peer, begin, now_ms)
            else:
                self._wake(role.replicas[voter.key.id].fetched_ms + silent_ms)

    def _poll_resigned(self, role: Resigned, now_ms: int) -> None:
        member = self._member
        if self._is_over(role.deadline_ms, now_ms):
            if member.is_sole_voter:
                member.become_candidate(now_ms)
            else:
                member.become_unattached(role.epoch + 1, now_ms)
            return
        end = EndEpoch(role.epoch, member.node.id, role.candidates, member.endpoints)
        for voter in member.history.current:
            peer = self._peer(voter.key.id, voter.endpoints)
            if voter.key.id in role.unacknowledged and peer is not None:
                self._send(peer, end, now_ms)
        if not role.unacknowledged:
            # A node that stops may not find its successor otherwise.
            self._search(now_ms)

    def _poll_follower(self, role: Follower, now_ms: int) -> None:
        member = self._member
        # While this node itself is busy, the leader's silence means nothing.
        is_busy = role.is_appending or not self._is_durable()
        if not is_busy and self._is_over(role.deadline_ms, now_ms):
            if member.is_voter:
                member.become_prospective(now_ms)
            else:
                member.become_unattached(role.epoch, now_ms)
            return
        peer = self._peer(role.leader_id, role.endpoints)
        if peer is None or is_busy:
            return
        self._report(role, peer, now_ms)
        if role.snapshot is not None:
            page = FetchSnapshot(role.epoch, member.node, role.snapshot, role.snapshot_position)
            self._send(peer, page, now_ms)
        else:
            self._send(peer, self._fetch(), now_ms)

    def _report(self, role: Follower, peer: Peer, now_ms: int) -> None:
        """Report this voter's directory and listeners to the leader, or request to become a voter."""
        if not role.has_fetched or role.has_reported:
            return
        request = self._voter_request(role)
        if request is None:
            role.has_reported = True
        elif self._is_over(role.report_ms, now_ms):
            role.report_ms = now_ms + self._member.timing.fetch_timeout_ms
            self._send(peer, request, now_ms)

    def _voter_request(self, role: Follower) -> Request | None:
        member, history = self._member, self._member.history
        own = member.own_voter
        if member.is_voter:
            # Configured voters always report, for a later upgrade to kraft.version 1.
            if history.kraft_version == 0 or history.current.get(own.key.id) != own:
                return UpdateVoter(role.epoch, member.node, member.endpoints, own.kraft_versions)
        elif member.joins and member.can_vote and history.kraft_version > 0:
            known = history.current.get(own.key.id)
            if known is not None:
                # This node with another directory, which it has lost.
                return RemoveVoter(role.epoch, known.key)
            return AddVoter(role.epoch, member.node, member.endpoints)
        return None

    def _ask_for_votes(self, role: Prospective | Candidate, now_ms: int) -> None:
        member = self._member
        for voter in member.history.current:
            peer = self._peer(voter.key.id, voter.endpoints)
            if voter.key.id not in role.ballot.missing or peer is None:
                continue
            vote = Vote(
                role.epoch,
                member.node,
                voter.key,
                member.log.last_epoch,
                member.log.end_offset,
                isinstance(role, Prospective),
            )
            self._send(peer, vote, now_ms)

    def _search(self, now_ms: int) -> None:
        """Send a fetch to another node to find the leader, also as a voter before the election timeout."""
        member = self._member
        peers = [peer for voter in member.history.current.others(member.node) if (peer := self._of(voter))]
        known = {peer[1:] for peer in peers} | {endpoint[1:] for endpoint in member.endpoints}
        # The bootstrap servers may list voters that have moved, and the other way round.
        peers += [peer for peer in member.bootstrap if peer[1:] not in known]
        if not peers or not self._is_durable():
            return
        if now_ms < self._search_ms:
            self._wake(self._search_ms)
            return
        self._search_ms = now_ms + SEARCH_PATIENCE * member.timing.retry_backoff_ms
        self._wake(self._search_ms)
        start = member.draw(len(peers))
        for peer in peers[start:] + peers[:start]:
            slot = member.in_flight.slot(peer, Lane.FETCH)
            if slot.sent is None and slot.ready_ms <= now_ms:
                self._send(peer, self._fetch(may_wait=False), now_ms)
                return

    def _fetch(self, *, may_wait: bool = True) -> Fetch:
        member = self._member
        end_offset, last_epoch = member.log.end_offset, member.log.last_epoch
        return Fetch(member.epoch, member.node, end_offset, last_epoch, member.high_watermark, may_wait)

    def _is_durable(self) -> bool:
        member = self._member
        return not member.can_vote or member.durable_offset >= member.log.end_offset

    def _send(self, peer: Peer, request: Request, now_ms: int) -> None:
        slot = self._member.in_flight.slot(peer, Lane.of(request))
        if slot.sent is not None:
            return
        if now_ms < slot.ready_ms:
            self._wake(slot.ready_ms)
            return
        slot.sent = Send(peer, request)
        self._member.outputs.append(slot.sent)

    def _of(self, voter: Voter) -> Peer | None:
        return self._peer(voter.key.id, voter.endpoints)

    def _peer(self, node_id: int, endpoints: tuple[Endpoint, ...]) -> Peer | None:
        for endpoint in endpoints:
            if endpoint.name == self._member.listener and node_id not in (NO_LEADER, self._member.node.id):
                return Peer(node_id, endpoint.host, endpoint.port)
        return None

    def _is_over(self, deadline_ms: int, now_ms: int) -> bool:
        if now_ms >= deadline_ms:
            return True
        self._wake(deadline_ms)
        return False

    def _wake(self, at_ms: int) -> None:
        self.wake_ms = min(self.wake_ms, at_ms)
