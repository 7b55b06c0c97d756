"""The core of a follower: what it believes of its leader, and how it finds where the logs diverge."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.log.epochs import Epochs
from runnel.replica.follower import FollowerReplica, Restart, Truncate, after_out_of_range, truncation_offset


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))))
def test_a_follower_believes_its_leader_as_far_as_its_own_log_goes(reports):
    core = FollowerReplica(2, 5, leader=1)
    expected = 0
    for leader_high_watermark, end_offset in reports:
        moved = core.committed(leader_high_watermark, end_offset)
        assert moved == (min(leader_high_watermark, end_offset) > expected)
        expected = max(expected, min(leader_high_watermark, end_offset))
        assert core.high_watermark == expected
        assert core.stored(end_offset + 100) is False
    core.truncated(expected // 2)
    assert core.high_watermark == expected // 2


HISTORIES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=6)


def log_of(history: list[tuple[int, int]], first_epoch: int = 0) -> list[int]:
    """The epochs of the records: each step raises the epoch and adds records."""
    epochs: list[int] = []
    epoch = first_epoch
    for step, count in history:
        epoch += step
        epochs += [epoch] * count
    return epochs


def cache_of(log: list[int]) -> Epochs:
    cache = Epochs()
    for offset, epoch in enumerate(log):
        cache.assign(epoch, offset)
    return cache


@given(HISTORIES, HISTORIES, HISTORIES)
def test_truncation_by_epoch_ends_where_the_logs_are_equal(common, own, others):
    """Epochs have one leader each: a record of an epoch at an offset is the same on all replicas."""
    shared = log_of(common)
    first = shared[-1] if shared else 0
    # The follower led in odd epochs after the common part, the leader's log has even ones.
    follower = shared + [2 * epoch + 1 for epoch in log_of(own, first)]
    leader = shared + [2 * epoch + 2 for epoch in log_of(others, first)]
    for _ in range(20):
        if not follower:
            break
        last_epoch = follower[-1]
        epoch, end_offset = cache_of(leader).end_of(last_epoch, len(leader))
        if epoch < 0:
            # OFFSET_OUT_OF_RANGE: the leader's log is shorter, or has only older epochs.
            action = after_out_of_range(0, len(follower), 0, len(leader))
            if action is None:
                break
            assert isinstance(action, Truncate)
            follower = follower[: action.offset]
            continue
        if epoch == last_epoch and end_offset >= len(follower):
            break
        own_end = cache_of(follower).end_of(epoch, len(follower))
        offset = truncation_offset((epoch, end_offset), own_end, len(follower))
        assert len(shared) <= offset, "no record of the common part is truncated"
        assert offset < len(follower), "each round makes progress"
        follower = follower[:offset]
    else:
        raise AssertionError("it never ends")
    if cache_of(leader).latest >= (follower[-1] if follower else 0):
        assert follower == leader[: len(follower)]


def test_an_offset_that_the_leader_does_not_have():
    assert after_out_of_range(0, 10, 0, 7) == Truncate(7)
    assert after_out_of_range(7, 10, 0, 7) == Truncate(7)
    assert after_out_of_range(8, 10, 3, 7) == Restart(3), "it has nothing of the leader's log"
    assert after_out_of_range(0, 10, 12, 20) == Restart(12)
    assert after_out_of_range(0, 10, 10, 20) is None
    assert after_out_of_range(0, 10, 3, 10) is None
