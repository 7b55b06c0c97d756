"""A few kills of what `make crash` does to a chain at length: every input is in the output exactly once."""

import pytest

from tools.crash.chain.run import run_chain


@pytest.mark.long
@pytest.mark.slow
def test_a_chain_of_transactions_survives_kills_of_all_processes(tmp_path) -> None:
    outcome = run_chain(tmp_path, kills=4, seed=3, policy="commit")
    assert outcome.violations == [], (tmp_path / "broker.log").read_text()[-3000:]
    assert outcome.inputs == outcome.outputs > 100
    assert outcome.aborted > 0, "no aborted record that could have been returned"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_a_chain_of_java_copiers_survives_kills_of_all_processes(tmp_path) -> None:
    outcome = run_chain(tmp_path, kills=3, seed=5, policy="never", client="java")
    assert outcome.violations == [], (tmp_path / "broker.log").read_text()[-3000:]
    assert outcome.inputs == outcome.outputs > 100
