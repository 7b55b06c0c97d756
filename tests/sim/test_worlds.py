"""A few simulated worlds in every test run; `make sim` plays hundreds."""

import pytest

from runnel.sim.history import Anomaly, History
from runnel.sim.story import tell


@pytest.mark.parametrize("seed", [1, 5, 8])
def test_the_broker_keeps_its_promises_through_crashes(seed: int) -> None:
    verdict = tell(seed)
    assert verdict.deaths
    assert verdict.acknowledged > 0
    assert verdict.commits > 0


def test_a_seed_tells_the_same_story_twice() -> None:
    assert tell(7) == tell(7)


def test_a_history_notices_what_it_was_made_for() -> None:
    history = History()
    history.wrote(0, 5, [b"a:0", b"a:1"])
    with pytest.raises(Anomaly, match="0@5"):
        history.read(0, 5, b"changed")
    with pytest.raises(Anomaly, match="promised"):
        history.check_log(0, {0: b"lost"})
    with pytest.raises(Anomaly, match="in order"):
        history.check_producer(b"a", {0: b"a:0", 1: b"a:0"}, 2)
    with pytest.raises(Anomaly, match="gaps"):
        History().check_log(0, {0: b"x", 2: b"y"})
