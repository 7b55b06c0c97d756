"""Groups that have consumed from a restored topic are distinguished from those that a restore has placed."""

import pytest

from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.restore.groups import GroupMove, commits_since_restore, committed_by, move_group


@pytest.fixture
def broker(runnel):
    with BrokerView(runnel.bootstrap_servers) as view:
        view.create_topic("orders", partitions=2)
        yield view


def test_only_a_place_that_is_not_ours_is_one_of_the_new_topic(broker):
    moves = move_group(broker, "readers", {0: 17, 1: 3}, "orders", "orders")
    assert moves == [GroupMove("readers", 0, 17, 0), GroupMove("readers", 1, 3, 0)]
    assert committed_by(broker, "readers", "orders") == {0: 17, 1: 3}
    assert commits_since_restore(broker, "readers", "orders", "orders", {0, 1}) == {}
    broker.commit_group_offsets("readers", {TopicPartition("orders", 1): 9})
    assert commits_since_restore(broker, "readers", "orders", "orders", {0, 1}) == {1: 9}
    # Where nothing was restored, an offset is what it always was.
    assert commits_since_restore(broker, "readers", "orders", "orders", {0}) == {}
    # Put there from another topic is not put there from this one.
    assert commits_since_restore(broker, "readers", "payments", "orders", {0}) == {0: 0}
    assert commits_since_restore(broker, "strangers", "orders", "orders", {0, 1}) == {}
