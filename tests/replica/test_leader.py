"""The leader core: what counts as committed, and whose epoch is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.errors import ApiError, ErrorCode
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


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, None), (5, None), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_older_and_newer_epochs_are_refused(epoch, error):
    if error is None:
        leader().check_epoch(epoch)
        return
    with pytest.raises(ApiError) as api_error:
        leader().check_epoch(epoch)
    assert api_error.value.error is error


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
