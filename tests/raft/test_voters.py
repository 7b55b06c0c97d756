"""What a member keeps about voters and observers."""

from runnel.raft.leader import Leader
from runnel.raft.values import ReplicaKey
from runnel.raft.voters import VoterHistory, Voters
from tests.raft.commands import key, voter


def voters(*ids: int) -> Voters:
    return Voters(voter(each) for each in ids)


def test_voter_sets_are_dropped_with_the_log() -> None:
    history = VoterHistory(None)
    history.restart(1, 1, voters(1))
    for offset in range(10, 100, 10):
        history.voters_appended(offset, voters(1, offset))
    before = {end_offset: history.at(end_offset) for end_offset in range(55, 120)}
    history.shortened(55)
    assert [offset for offset, _ in history._sets] == [50, 60, 70, 80, 90]
    assert {end_offset: history.at(end_offset) for end_offset in range(55, 120)} == before
    history.shortened(200)
    assert (history.current, history.previous) == (voters(1, 90), voters(1, 80))
    assert len(history._sets) == 2
    assert history.kraft_version == 1


def test_a_consumer_of_the_log_is_no_observer() -> None:
    leader = Leader(key(1), 1, 0, voters(1, 2, 3), 1000, 1000)
    leader.fetched(ReplicaKey(-1, bytes(16)), 0, 0, 0)
    assert not leader.observers
    leader.fetched(key(4), 0, 0, 0)
    assert list(leader.observers) == [key(4)]
