"""A few simulations in every test run; `make sim` runs hundreds."""

import pytest

from runnel.sim.history import Anomaly, History
from runnel.sim.workload import simulate


@pytest.mark.parametrize("seed", [1, 8])
def test_guarantees_hold_through_crashes(seed: int) -> None:
    result = simulate(seed)
    assert result.shutdowns
    assert result.acknowledged > 0
    assert result.commits > 0


def test_simulation_is_deterministic() -> None:
    assert simulate(7) == simulate(7)


def test_history_detects_anomalies() -> None:
    history = History()
    history.record_write(0, 5, [b"a:0", b"a:1"])
    with pytest.raises(Anomaly, match="0@5"):
        history.record_read(0, 5, b"changed")
    with pytest.raises(Anomaly, match="expected"):
        history.check_log(0, {0: b"lost"})
    with pytest.raises(Anomaly, match="in order"):
        history.check_producer(b"a", {0: b"a:0", 1: b"a:0"}, 2)
    with pytest.raises(Anomaly, match="gaps"):
        History().check_log(0, {0: b"x", 2: b"y"})
