"""A few simulated worlds of transactions in every test run, and whether their judge would notice."""

import pytest

from runnel.messages.fetch import AbortedTransaction, PartitionData
from runnel.sim.history import Anomaly
from runnel.sim.txn_history import COPIES, SOURCE, TransactionHistory
from runnel.sim.txn_reading import committed_records
from runnel.sim.txn_story import tell_transactions

PLACE = (SOURCE, 0)


@pytest.mark.parametrize("seed", [2, 7])
def test_transactions_are_whole_through_crashes(seed: int) -> None:
    verdict = tell_transactions(seed)
    assert verdict.deaths
    assert verdict.commits > verdict.copies > 0
    assert verdict.attempts > verdict.commits
    assert verdict.refusals, "no zombie was fenced"


def test_a_seed_tells_the_same_transactions_twice() -> None:
    assert tell_transactions(4) == tell_transactions(4)


def a_history() -> TransactionHistory:
    """p.1 wrote 1 and 2 and was committed; p.2 wrote 3 and was never ended; p.3 wrote 4 and was aborted."""
    history = TransactionHistory()
    committed = history.begin(b"p.1")
    committed.size, committed.is_commit_asked = 2, True
    history.committed(committed, is_copy=False)
    history.begin(b"p.2").size = 1
    aborted = history.begin(b"p.3")
    aborted.size, aborted.is_commit_asked, aborted.is_aborted = 1, True, True
    return history


LOG = {0: b"p:1:p.1", 1: b"p:2:p.1"}


def test_what_was_never_committed_may_not_be_shown() -> None:
    history = a_history()
    history.show(PLACE, 0, LOG[0])
    for value in (b"p:3:p.2", b"p:4:p.3"):
        with pytest.raises(Anomaly, match="shows"):
            history.show(PLACE, 1, value)
        with pytest.raises(Anomaly, match="are shown of"):
            history.check_attempts({PLACE: {**LOG, 2: value}})


def test_the_last_stable_offset_never_goes_back() -> None:
    history = a_history()
    history.stand(PLACE, 5, 9)
    with pytest.raises(Anomaly, match="stable up to 4"):
        history.stand(PLACE, 4, 9)
    with pytest.raises(Anomaly, match="stable up to 10"):
        history.stand(PLACE, 10, 9)


def test_torn_and_lost_transactions_are_noticed() -> None:
    history = a_history()
    history.check_attempts({PLACE: LOG})
    with pytest.raises(Anomaly, match="torn"):
        history.check_attempts({PLACE: {0: LOG[0]}})
    with pytest.raises(Anomaly, match="lost"):
        history.check_attempts({PLACE: {}})


def test_order_and_duplicates_and_undone_reads_are_noticed() -> None:
    history = a_history()
    history.check_log(PLACE, LOG)
    for broken in ({0: LOG[1], 1: LOG[0]}, {0: LOG[0], 1: LOG[0]}):
        with pytest.raises(Anomaly, match="after number"):
            history.check_log(PLACE, broken)
    history.show(PLACE, 1, LOG[1])
    with pytest.raises(Anomaly, match="was shown as"):
        history.check_log(PLACE, {0: LOG[0]})


def test_copies_and_the_group_s_offset_agree() -> None:
    history = a_history()
    copies = {0: LOG[0] + b">c.1"}
    history.check_copies(0, LOG, copies, 1)
    with pytest.raises(Anomaly, match="2 in the source, 1 copies"):
        history.check_copies(0, LOG, copies, 2)
    with pytest.raises(Anomaly, match="1 in the source, 2 copies"):
        history.check_copies(0, LOG, {**copies, 1: LOG[0] + b">c.2"}, 1)
    history.moved[0] = 5
    with pytest.raises(Anomaly, match="was at 5"):
        history.check_copies(0, LOG, copies, 1)
    assert COPIES != SOURCE


def test_a_reader_holds_the_broker_to_the_order_of_what_was_aborted() -> None:
    listed = [AbortedTransaction(1, 9), AbortedTransaction(2, 3)]
    with pytest.raises(Anomaly, match="order of their offsets"):
        committed_records(PartitionData(last_stable_offset=20, aborted_transactions=listed), 0)
