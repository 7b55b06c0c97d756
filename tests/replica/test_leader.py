"""The cores of leader and follower: what counts as committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.errors import ApiError, ErrorCode
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica


def leader(epoch: int = 5, replicas: int = 1, in_sync: int = 1) -> LeaderReplica:
    return LeaderReplica(1, epoch, frozenset(range(1, replicas + 1)), frozenset(range(1, in_sync + 1)))


@given(st.lists(st.integers(0, 1000)))
def test_the_high_watermark_is_the_most_that_was_ever_stored(stored):
    core = leader()
    for index, offset in enumerate(stored):
        moved = core.stored(offset)
        assert core.high_watermark == max(stored[: index + 1])
        assert moved == (offset > max([0, *stored[:index]]))


NODES = st.sampled_from([2, 3, 4])
SETS = st.frozensets(st.sampled_from([1, 2, 3, 4])).map(lambda members: members | {1})
EVENTS = st.one_of(
    st.tuples(st.just("stored"), st.integers(0, 50)),
    st.tuples(st.just("fetched"), NODES, st.integers(0, 50)),
    st.tuples(st.just("isr"), SETS, st.none() | SETS),
)


@given(st.lists(EVENTS, max_size=40))
def test_the_high_watermark_is_what_every_member_of_the_maximal_isr_holds(events):
    core = LeaderReplica(1, 5, frozenset({1, 2, 3, 4}), frozenset({1, 2}))
    ends = dict.fromkeys((1, 2, 3, 4), 0)
    expected = 0
    for event in events:
        before = core.high_watermark
        match event:
            case ("stored", offset):
                moved = core.stored(offset)
                ends[1] = max(ends[1], offset)
            case ("fetched", node, offset):
                moved = core.fetched(node, offset)
                ends[node] = offset
            case ("isr", isr, proposed):
                moved = core.isr_changed(isr, proposed)
        maximal = core.isr | (core.proposed_isr or frozenset())
        expected = max(expected, min(ends[node] for node in maximal))
        assert core.high_watermark == expected
        assert moved == (expected > before)


def test_only_replicas_are_followers():
    with pytest.raises(ApiError):
        leader().fetched(9, 3)


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
    core.check_truncation(expected)
    if expected:
        with pytest.raises(ApiError):
            core.check_truncation(expected - 1)


@pytest.mark.parametrize(
    ("replicas", "in_sync", "needed", "is_refused"),
    [(1, 1, 1, False), (1, 1, 2, False), (3, 2, 2, False), (3, 1, 2, True), (3, 2, 5, True)],
)
def test_a_topic_needs_no_more_replicas_in_sync_than_it_has(replicas, in_sync, needed, is_refused):
    core = leader(replicas=replicas, in_sync=in_sync)
    if is_refused:
        with pytest.raises(ApiError) as error:
            core.check_in_sync(needed)
        assert error.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        core.check_in_sync(needed)
