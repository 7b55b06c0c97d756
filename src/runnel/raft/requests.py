"""How a member answers the requests of other members."""

from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_LEADER
from runnel.raft.leader import Leader
from runnel.raft.member import Member, is_same
from runnel.raft.positions import position_of
from runnel.raft.roles import Follower, Prospective, Unattached
from runnel.raft.values import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    ReplicaKey,
    Reply,
    Vote,
    VoteReply,
)


class Requests:
    """Answers votes, announcements of leaders, and fetches."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def vote(self, vote: Vote, now_ms: int) -> VoteReply:
        """A candidate requests this node's vote."""
        member = self._member
        error = self._check_vote(vote, now_ms)
        is_granted = error is ErrorCode.NONE and self._grants(vote)
        if is_granted and not vote.is_pre_vote:
            member.grant_vote(vote.candidate, now_ms)
        return VoteReply(error, member.epoch, member.role.leader_id, member.leader_endpoints, is_granted)

    def begin_epoch(self, begin: BeginEpoch, now_ms: int) -> Reply:
        """A leader announces itself."""
        member = self._member
        error = self._check_leader(begin.epoch, begin.leader_id)
        if error is ErrorCode.NONE:
            member.become_follower(begin.epoch, begin.leader_id, begin.endpoints, now_ms)
            if isinstance(member.role, Follower):
                member.role.deadline_ms = now_ms + member.timing.fetch_timeout_ms
            if not self._is_addressed(begin.voter):
                error = ErrorCode.INVALID_VOTER_KEY
        return self.reply(error)

    def end_epoch(self, end: EndEpoch, now_ms: int) -> Reply:
        """A leader resigns."""
        member = self._member
        error = self._check_leader(end.epoch, end.leader_id)
        if error is ErrorCode.NONE:
            member.become_follower(end.epoch, end.leader_id, end.endpoints, now_ms)
            if isinstance(member.role, Follower) and member.is_voter:
                member.role.is_leader_lost = True
                member.role.deadline_ms = now_ms + self._succession_delay_ms(end.candidates)
        return self.reply(error)

    def fetch(self, fetch: Fetch, now_ms: int) -> FetchReply:
        """A replica fetches. The caller adds records if there is no error, divergence or snapshot."""
        member = self._member
        reply = FetchReply(
            self.check_follower(fetch.epoch), member.epoch, member.role.leader_id, member.leader_endpoints
        )
        role = member.role
        if reply.error is not ErrorCode.NONE or not isinstance(role, Leader):
            return reply
        if fetch.offset < 0 or fetch.last_epoch < 0 or fetch.last_epoch > fetch.epoch:
            reply.error = ErrorCode.INVALID_REQUEST
            return reply
        position = position_of(member.log, fetch.offset, fetch.last_epoch)
        reply.diverging, reply.snapshot = position.diverging, position.snapshot
        if position.diverging is not None or position.snapshot is not None:
            role.update_check_quorum(fetch.replica, now_ms)
        elif role.fetched(fetch.replica, fetch.offset, member.log.end_offset, now_ms):
            member.advance(role.high_watermark)
        reply.high_watermark = role.high_watermark
        return reply

    def fetch_snapshot(self, fetch: FetchSnapshot, now_ms: int) -> Reply:
        """A replica fetches a page of a snapshot. The caller adds its bytes if there is no error."""
        error = self.check_follower(fetch.epoch)
        if error is ErrorCode.NONE and isinstance(self._member.role, Leader):
            self._member.role.update_check_quorum(fetch.replica, now_ms)
        return self.reply(error)

    def reply(self, error: ErrorCode) -> Reply:
        """A reply with the fields that all replies have."""
        member = self._member
        return Reply(error, member.epoch, member.role.leader_id, member.leader_endpoints)

    def check_follower(self, epoch: int) -> ErrorCode:
        """May this node answer a request to the leader of this epoch?"""
        if epoch < self._member.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._member.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self._member.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _check_vote(self, vote: Vote, now_ms: int) -> ErrorCode:
        member = self._member
        last_epoch_max = vote.epoch if vote.is_pre_vote else vote.epoch - 1
        is_valid = vote.end_offset >= 0 and 0 <= vote.last_epoch <= last_epoch_max and vote.candidate.id >= 0
        if not is_valid or not member.is_credible(vote.epoch):
            return ErrorCode.INVALID_REQUEST
        if vote.epoch < member.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if vote.epoch > member.epoch:
            member.become_unattached(vote.epoch, now_ms)
        return ErrorCode.NONE if self._is_addressed(vote.voter) else ErrorCode.INVALID_VOTER_KEY

    def _grants(self, vote: Vote) -> bool:
        role, log = self._member.role, self._member.log
        is_complete = (vote.last_epoch, vote.end_offset) >= (log.last_epoch, log.end_offset)
        if vote.end_offset > 0 and self._may_have_lost_log():
            return False
        if vote.is_pre_vote:
            # A leader that is alive here is not to be replaced for a voter that cannot reach it.
            has_leader = isinstance(role, Follower) and role.has_fetched and not role.is_leader_lost
            return is_complete and not has_leader and not isinstance(role, Leader)
        if not isinstance(role, Unattached | Prospective):
            return False
        if role.voted is not None:
            return is_same(role.voted, vote.candidate)
        return role.leader_id == NO_LEADER and is_complete

    def _may_have_lost_log(self) -> bool:
        """Could records be committed by what this node had stored before its directory was emptied?

        A candidate may lack them. If voters are an even number, one more has them than a candidate can do
        without. In a dynamic quorum a new directory is no voter.
        """
        member = self._member
        is_suspect = member.may_be_wiped and member.log.end_offset == 0
        return is_suspect and member.history.kraft_version == 0 and len(member.history.current) % 2 == 1

    def _check_leader(self, epoch: int, leader_id: int) -> ErrorCode:
        member = self._member
        if epoch < member.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        is_other = epoch == member.epoch and member.role.leader_id not in (NO_LEADER, leader_id)
        is_valid = leader_id >= 0 and leader_id != member.node.id and member.is_credible(epoch)
        if not is_valid or is_other:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _is_addressed(self, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.id < 0 or self._member.is_self(voter)

    def _succession_delay_ms(self, candidates: tuple[ReplicaKey, ...]) -> int:
        """The first candidate begins an election at once, the others later if it does not."""
        backoff_max_ms = self._member.timing.election_backoff_max_ms
        for position, candidate in enumerate(candidates):
            if self._member.is_self(candidate):
                if position == 0:
                    return 0
                return (backoff_max_ms >> (len(candidates) - 1)) << (position - 1)
        return backoff_max_ms
