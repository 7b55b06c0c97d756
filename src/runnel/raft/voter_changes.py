"""Changes of the voter set, one at a time (KIP-853): the leader decides, and appends a VotersRecord.

A change is refused while it is unknown what is committed, or while the last change is not: two sets in
succession then differ by one voter, so that their majorities overlap.
"""

from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID
from runnel.model.limits import REGISTERED_LISTENERS_MAX
from runnel.raft.leader import NEVER, Leader
from runnel.raft.member import Member, is_same
from runnel.raft.values import ReplicaKey
from runnel.raft.voters import DYNAMIC_KRAFT_VERSION, STATIC_KRAFT_VERSION, Voter, Voters

CAUGHT_UP_MAX_MS = 60 * 60 * 1000
"""A new voter must have been caught up within this time."""


class VoterChanges:
    """Which changes of the voter set are possible now. All methods raise ApiError if one is not."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def adding(self, voter: Voter) -> Voters:
        """The set with a new voter; the caller checks that it has caught up."""
        self._check_ready()
        current = self._member.history.current
        if voter.key.id in current.ids:
            raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {voter.key.id} is a voter")
        _check_limits(voter)
        if voter.key.directory_id == NO_ID or voter.endpoint(self._member.listener) is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"a voter needs a directory id and the listener {self._member.listener}",
            )
        return current.having(voter)

    def has_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Does this observer have, or had it recently, everything that the leader had?"""
        progress = self._leader().observers.get(key)
        if progress is None or progress.caught_up_ms == NEVER:
            return False
        return now_ms - progress.caught_up_ms <= CAUGHT_UP_MAX_MS

    def removing(self, key: ReplicaKey) -> Voters:
        """The set without a voter."""
        self._check_ready()
        current = self._member.history.current
        if key not in current or len(current) == 1:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {key.id} is not a voter with this directory")
        return current.without(key.id)

    def updating(self, voter: Voter) -> Voters | None:
        """The set with the listeners and versions that a voter reports; None if that changes nothing."""
        leader, history = self._leader(), self._member.history
        _check_limits(voter)
        if voter.endpoint(self._member.listener) is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the listener {self._member.listener} is missing")
        known = history.current.get(voter.key.id)
        lowest, highest = voter.kraft_versions
        if known is None or not is_same(known.key, voter.key):
            raise ApiError(
                ErrorCode.VOTER_NOT_FOUND, f"node {voter.key.id} is not a voter with this directory"
            )
        if not lowest <= history.kraft_version <= highest:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"kraft.version {history.kraft_version} is needed")
        if history.kraft_version == STATIC_KRAFT_VERSION:
            history.reported(voter)
            return None
        if known == voter:
            return None
        assert leader.epoch == self._member.epoch
        self._check_ready()
        return history.current.having(voter)

    def upgrading(self) -> Voters:
        """The configured voters, for a change to kraft.version 1."""
        leader, history = self._leader(), self._member.history
        if leader.high_watermark < 0:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record yet")
        voters = history.dynamic_voters(self._member.own_voter)
        if voters is None or not all(voter.kraft_versions[1] >= DYNAMIC_KRAFT_VERSION for voter in voters):
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "not all voters have reported that they support kraft.version 1",
            )
        return voters

    def _leader(self) -> Leader:
        role = self._member.role
        if not isinstance(role, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        return role

    def _check_ready(self) -> None:
        leader, history = self._leader(), self._member.history
        if history.kraft_version == STATIC_KRAFT_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "voters are configured (kraft.version 0): raise kraft.version to 1",
            )
        if leader.high_watermark < 0 or history.last_change_offset >= leader.high_watermark:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet")


def _check_limits(voter: Voter) -> None:
    if voter.key.id < 0 or len(voter.endpoints) > REGISTERED_LISTENERS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"a voter has an id, and at most {REGISTERED_LISTENERS_MAX} listeners"
        )
