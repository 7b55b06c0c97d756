"""How a member processes the replies to its requests, and their failures."""

from runnel.model.errors import ErrorCode
from runnel.raft.in_flight import Lane
from runnel.raft.leader import Leader
from runnel.raft.member import Member
from runnel.raft.polling import Polling
from runnel.raft.positions import truncation_offset
from runnel.raft.roles import Candidate, Follower, Prospective, Resigned
from runnel.raft.values import (
    AddVoter,
    Append,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Peer,
    RemoveVoter,
    Reply,
    Send,
    SnapshotReply,
    Truncate,
    UpdateVoter,
    Vote,
    VoteReply,
    WritePage,
)


class BrokenLog(Exception):
    """The leader's log contradicts what was committed: this node must not continue."""


class Replies:
    """Processes replies and failures in the role that sent the request; others are stale."""

    def __init__(self, member: Member, polling: Polling) -> None:
        self._member = member
        self._polling = polling

    def answered(self, sent: Send, reply: Reply, now_ms: int) -> None:
        """A request was answered."""
        member = self._member
        is_usable = reply.error is ErrorCode.NONE and member.is_credible(reply.epoch)
        pause_ms = 0 if is_usable else member.timing.retry_backoff_ms
        is_current = member.in_flight.ended(sent, now_ms + pause_ms)
        self._polling.search_soon(now_ms)
        if member.maybe_transition(reply, now_ms):
            # The reply may have reported the leader: then the role has just changed.
            self._dispatch(sent, reply, is_current, now_ms)

    def failed(self, sent: Send, is_broken: bool, now_ms: int) -> None:
        """A request failed; `is_broken` if its connection was refused or closed."""
        member = self._member
        timing = member.timing
        self._polling.search_soon(now_ms)
        is_announcement = isinstance(sent.request, BeginEpoch)
        pause_ms = timing.fetch_timeout_ms // 4 if is_announcement else timing.retry_backoff_ms
        if not member.in_flight.ended(sent, now_ms + pause_ms):
            return
        match member.role, sent.request:
            case Follower(), Fetch() | FetchSnapshot():
                self._leader_failed(member.role, is_broken, now_ms)
            case Prospective() | Candidate(), Vote():
                member.role.ballot.unreachable.add(sent.peer.id)
                self._retry_sooner(member.role, now_ms)

    def unsupported(self, sent: Send, now_ms: int) -> None:
        """The peer does not support the request, or this version of it."""
        member = self._member
        if not member.in_flight.ended(sent, now_ms + member.timing.fetch_timeout_ms // 2):
            return
        match member.role, sent.request:
            case Prospective(), Vote():
                # A voter of an older release does not support pre-votes: its vote is requested.
                member.become_candidate(now_ms)
            case Follower(), UpdateVoter() | AddVoter() | RemoveVoter():
                member.role.has_reported = True

    def _dispatch(self, sent: Send, reply: Reply, is_current: bool, now_ms: int) -> None:
        member = self._member
        match member.role, sent.request, reply:
            case Prospective() | Candidate(), Vote(), VoteReply() if is_current:
                self._vote_answered(member.role, sent.request, sent.peer, reply, now_ms)
            case Leader(), BeginEpoch(), _ if is_current and reply.error is ErrorCode.NONE:
                slot = member.in_flight.slot(sent.peer, Lane.ELECTION)
                slot.ready_ms = now_ms + member.timing.fetch_timeout_ms // 2
            case Resigned(), EndEpoch(), _ if is_current and reply.error is ErrorCode.NONE:
                member.role.unacknowledged.discard(sent.peer.id)
            case Follower(), Fetch(), FetchReply():
                self._fetch_answered(member.role, sent.request, reply, now_ms)
            case Follower(), FetchSnapshot(), SnapshotReply() if is_current:
                self._page_answered(member.role, sent.request, reply, now_ms)
            case Follower(), UpdateVoter() | AddVoter() | RemoveVoter(), _ if is_current:
                member.role.has_reported = reply.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)

    def _vote_answered(
        self, role: Prospective | Candidate, vote: Vote, peer: Peer, reply: VoteReply, now_ms: int
    ) -> None:
        # The reply does not contain the round that it is for.
        if vote.epoch == role.epoch and vote.is_pre_vote == isinstance(role, Prospective):
            if reply.error is ErrorCode.NONE:
                role.ballot.record(peer.id, reply.is_granted)
            self._retry_sooner(role, now_ms)

    def _retry_sooner(self, role: Prospective | Candidate, now_ms: int) -> None:
        """Hold the next round sooner, at a random time, if this one cannot be won."""
        if role.ballot.is_hopeless:
            timing = self._member.timing
            wait_ms = timing.retry_backoff_ms + self._member.draw(max(timing.election_backoff_max_ms, 1))
            role.deadline_ms = min(role.deadline_ms, now_ms + wait_ms)

    def _fetch_answered(self, role: Follower, fetch: Fetch, reply: FetchReply, now_ms: int) -> None:
        member = self._member
        is_leader = reply.error is ErrorCode.NONE and reply.leader_id == role.leader_id
        if not is_leader or fetch.epoch != role.epoch:
            return
        self.leader_answered(role, now_ms)
        position = (member.log.end_offset, member.log.last_epoch)
        if role.is_appending or role.snapshot is not None or (fetch.offset, fetch.last_epoch) != position:
            return
        if reply.diverging is not None:
            offset = truncation_offset(member.log, reply.diverging)
            if offset < member.high_watermark:
                raise BrokenLog(f"the leader's log diverges at {offset}, below {member.high_watermark}")
            role.is_appending = True
            member.outputs.append(Truncate(offset))
        elif reply.snapshot is not None:
            if reply.snapshot.end_offset < member.high_watermark:
                raise BrokenLog(
                    f"the leader has a snapshot at {reply.snapshot}, below {member.high_watermark}"
                )
            role.snapshot, role.snapshot_position = reply.snapshot, 0
        else:
            role.leader_high_watermark = max(role.leader_high_watermark, reply.high_watermark)
            if len(reply.records):
                role.is_appending = True
                member.outputs.append(Append(reply.records, role.epoch))
            else:
                self.follow_high_watermark(role)

    def _page_answered(self, role: Follower, fetch: FetchSnapshot, reply: SnapshotReply, now_ms: int) -> None:
        if fetch.epoch != role.epoch or fetch.snapshot != role.snapshot:
            return
        if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            role.snapshot = None
        elif reply.error is ErrorCode.NONE and reply.leader_id == role.leader_id:
            self.leader_answered(role, now_ms)
            if reply.position == role.snapshot_position and not role.is_appending:
                role.snapshot_position += len(reply.data)
                is_last = role.snapshot_position >= reply.size_bytes
                role.is_appending = True
                page = WritePage(fetch.snapshot, reply.position, reply.data, is_last)
                self._member.outputs.append(page)

    def follow_high_watermark(self, role: Follower) -> bool:
        """Commit what the leader has committed, as far as it is stored here; True if that is more."""
        member = self._member
        stored = member.durable_offset if member.can_vote else member.log.end_offset
        return member.advance(min(role.leader_high_watermark, stored))

    def leader_answered(self, role: Follower, now_ms: int) -> None:
        """The leader is alive."""
        role.has_fetched, role.is_leader_lost = True, False
        role.deadline_ms = now_ms + self._member.timing.fetch_timeout_ms

    def _leader_failed(self, role: Follower, is_broken: bool, now_ms: int) -> None:
        member = self._member
        step_ms = member.timing.unreachable_election_ms
        if not member.is_voter:
            # Other members know the leader, or will know its successor.
            self._polling.search_later(now_ms)
            member.become_unattached(role.epoch, now_ms)
        elif is_broken and step_ms and not role.is_leader_lost:
            role.is_leader_lost = True
            rank = sum(each < member.node.id for each in member.history.current.ids if each != role.leader_id)
            delay_ms = rank * step_ms + member.draw(max(step_ms // 2, 1))
            role.deadline_ms = min(role.deadline_ms, now_ms + delay_ms)
