"""A few simulations of transactions in every test run, and tests of their checks."""

import pytest

from runnel.messages.fetch import AbortedTransaction, PartitionData
from runnel.sim.history import Anomaly
from runnel.sim.txn_history import COPIES, SOURCE, TransactionHistory
from runnel.sim.txn_reading import committed_records
from runnel.sim.txn_workload import simulate_transactions

KEY = (SOURCE, 0)


@pytest.mark.parametrize("seed", [2])
def test_transactions_are_atomic_through_crashes(seed: int) -> None:
    result = simulate_transactions(seed)
    assert result.shutdowns
    assert result.commits > result.copies > 0
    assert result.attempts > result.commits
    assert result.rejections, "no zombie was fenced"


def test_simulation_is_deterministic() -> None:
    assert simulate_transactions(4) == simulate_transactions(4)


def example_history() -> TransactionHistory:
    """p.1 wrote 1 and 2 and committed; p.2 wrote 3 and did not end; p.3 wrote 4 and aborted."""
    history = TransactionHistory()
    committed = history.begin(b"p.1")
    committed.size, committed.is_commit_requested = 2, True
    history.committed(committed, is_copy=False)
    history.begin(b"p.2").size = 1
    aborted = history.begin(b"p.3")
    aborted.size, aborted.is_commit_requested, aborted.is_aborted = 1, True, True
    return history


LOG = {0: b"p:1:p.1", 1: b"p:2:p.1"}


def test_uncommitted_reads_are_detected() -> None:
    history = example_history()
    history.observe(KEY, 0, LOG[0])
    for value in (b"p:3:p.2", b"p:4:p.3"):
        with pytest.raises(Anomaly, match="returned"):
            history.observe(KEY, 1, value)
        with pytest.raises(Anomaly, match="are visible of"):
            history.check_attempts({KEY: {**LOG, 2: value}})


def test_decreasing_last_stable_offset_is_detected() -> None:
    history = example_history()
    history.observe_stable_offset(KEY, 5, 9)
    with pytest.raises(Anomaly, match="last stable offset 4"):
        history.observe_stable_offset(KEY, 4, 9)
    with pytest.raises(Anomaly, match="last stable offset 10"):
        history.observe_stable_offset(KEY, 10, 9)


def test_partial_and_lost_transactions_are_detected() -> None:
    history = example_history()
    history.check_attempts({KEY: LOG})
    with pytest.raises(Anomaly, match="partial"):
        history.check_attempts({KEY: {0: LOG[0]}})
    with pytest.raises(Anomaly, match="lost"):
        history.check_attempts({KEY: {}})


def test_wrong_order_duplicates_and_unrepeatable_reads_are_detected() -> None:
    history = example_history()
    history.check_log(KEY, LOG)
    for broken in ({0: LOG[1], 1: LOG[0]}, {0: LOG[0], 1: LOG[0]}):
        with pytest.raises(Anomaly, match="after number"):
            history.check_log(KEY, broken)
    history.observe(KEY, 1, LOG[1])
    with pytest.raises(Anomaly, match="was read as"):
        history.check_log(KEY, {0: LOG[0]})


def test_copies_that_disagree_with_the_committed_offset_are_detected() -> None:
    history = example_history()
    copies = {0: LOG[0] + b">c.1"}
    history.check_copies(0, LOG, copies, 1)
    with pytest.raises(Anomaly, match="2 in the source, 1 copies"):
        history.check_copies(0, LOG, copies, 2)
    with pytest.raises(Anomaly, match="1 in the source, 2 copies"):
        history.check_copies(0, LOG, {**copies, 1: LOG[0] + b">c.2"}, 1)
    history.committed_offsets[0] = 5
    with pytest.raises(Anomaly, match="was 5"):
        history.check_copies(0, LOG, copies, 1)
    assert COPIES != SOURCE


def test_unsorted_aborted_transactions_are_detected() -> None:
    listed = [AbortedTransaction(1, 9), AbortedTransaction(2, 3)]
    with pytest.raises(Anomaly, match="sorted by first offset"):
        committed_records(PartitionData(last_stable_offset=20, aborted_transactions=listed), 0)
