"""The measurement of a broker's failure runs, and finds its partitions."""

import pytest

from runnel.controller.broker_changes import fence_broker
from tools.bench.controller import measure, new_cluster


def test_a_failure_changes_the_partitions_of_the_broker() -> None:
    controller = new_cluster(600, brokers=4, replicas=2, topic_size=100)
    costs = controller.carry_out(fence_broker(controller.ahead, controller.settings, 1))
    assert costs.records == 300 + 1
    assert controller.committed.brokers[1].is_fenced
    assert all(
        1 not in state.isr for topic in controller.committed.topics.values() for state in topic.partitions
    )


def test_figures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    measure(400, brokers=4, replicas=2, topic_size=100)
    assert "201 records" in capsys.readouterr().out
