"""The leader of the quorum: since when it may have been replaced without knowing."""

from runnel.raft.leader import Leader
from runnel.raft.values import ReplicaKey
from runnel.raft.voters import Voter, Voters

CHECK_MS = 1500
NODES = [ReplicaKey(number, bytes([number]) * 16) for number in (1, 2, 3)]


def leader(now_ms: int) -> Leader:
    voters = Voters([Voter(key, ()) for key in NODES])
    return Leader(NODES[0], 1, 0, voters, CHECK_MS, now_ms + CHECK_MS)


def test_a_majority_counts_from_its_last_fetch() -> None:
    core = leader(100)
    assert core.majority_ms == 100
    core.fetched(NODES[1], offset=5, leader_end_offset=5, now_ms=200)
    assert core.majority_ms == 200


def test_a_voter_that_no_response_reaches_keeps_the_leader_but_proves_nothing() -> None:
    core = leader(0)
    core.fetched(NODES[1], offset=5, leader_end_offset=5, now_ms=100)
    core.fetched(NODES[1], offset=5, leader_end_offset=6, now_ms=700)
    assert (core.majority_ms, core.deadline_ms) == (100, 700 + CHECK_MS)
    core.fetched(NODES[1], offset=6, leader_end_offset=6, now_ms=800)
    assert core.majority_ms == 800


def test_fetches_of_observers_are_no_contact() -> None:
    core = leader(0)
    core.fetched(ReplicaKey(9, bytes(15) + b"9"), offset=5, leader_end_offset=5, now_ms=100)
    assert core.majority_ms == 0


def test_a_majority_of_five_is_as_old_as_its_oldest_member() -> None:
    nodes = [ReplicaKey(number, bytes([number]) * 16) for number in range(1, 6)]
    core = Leader(nodes[0], 1, 0, Voters([Voter(key, ()) for key in nodes]), CHECK_MS, CHECK_MS)
    core.fetched(nodes[1], offset=5, leader_end_offset=5, now_ms=100)
    core.fetched(nodes[2], offset=5, leader_end_offset=5, now_ms=900)
    assert core.majority_ms == 100
