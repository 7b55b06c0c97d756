"""The broker process of the harnesses: paused and resumed."""

from pathlib import Path

from tools.broker_process import BrokerProcess, answers


def test_a_paused_broker_does_not_answer_until_it_is_resumed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        with broker.held():
            assert not answers(broker.port, timeout_s=0.3)
        assert answers(broker.port, timeout_s=20)
    finally:
        broker.kill()
