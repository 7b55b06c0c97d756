"""The broker process of the harnesses: what it is held to while it is held."""

from pathlib import Path

from tools.broker_process import BrokerProcess, answers


def test_a_held_broker_stands_still_and_goes_on_afterwards(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        with broker.held():
            assert not answers(broker.port, timeout_s=0.3)
        assert answers(broker.port, timeout_s=20)
    finally:
        broker.kill()
