"""Replayed batches are written exactly once, against a real broker."""

from collections import Counter
from uuid import uuid4

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from runnel.client import SyncClient, Transactions
from runnel.client.cluster import Cluster
from runnel.pipelines.errors import BadOption, BrokerUnreachable, PipelineError
from runnel.pipelines.sink.decision import CommitMarker, InDoubt, NotDecided
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.sink.writers import BatchWriter
from tests.client.hanging import set_transaction_version
from tests.pipelines.sink.stage import Query, arrow, expected, interrupted, rows_of


class Killed(BaseException):
    """The committing process was killed."""


@pytest.fixture(params=[1, 2])
def query(runnel, request):
    """A query on a broker with transaction.version 1 and 2 (KIP-890)."""
    with runnel.client() as client:
        client.create_topic("out", partitions=3)
    if request.param == 1:
        set_transaction_version(runnel, 1)
    return Query(runnel.bootstrap_servers)


@pytest.fixture
def new_query(runnel_session):
    """A query on the broker that all tests share."""
    topic = f"out-{uuid4().hex}"
    with runnel_session.client() as client:
        client.create_topic(topic, partitions=3)
    return Query(runnel_session.bootstrap_servers, topic)


def test_batches_become_visible_when_they_are_committed(query):
    messages = query.write(0, 3)
    assert not query.visible()
    query.commit(messages)
    query.run(1)
    assert query.visible() == expected(2)


def test_a_batch_that_is_run_again_writes_nothing(query):
    query.run(0, 2)
    messages = query.write(0, 3)
    assert all(message.has_skipped and message.part is None for message in messages)
    query.commit(messages)
    query.run(1)
    assert query.visible() == expected(2)


@pytest.mark.parametrize("fails_after", [False, True])
@pytest.mark.parametrize("verb", ["claim", "read", "other_open_parts", "is_open", "write", "commit", "abort"])
@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_commit_killed_at_any_step_is_completed_or_written_again(
    new_query, monkeypatch, verb, fails_after, is_aborted
):
    query = new_query
    query.run(0)
    lost_attempt = query.task(1, 0, [arrow(rows_of(1)[0::2])])
    messages = query.write(1, 2)
    assert lost_attempt.part is not None
    with monkeypatch.context() as patch:
        kill_at(patch, verb, fails_after)
        with pytest.raises(Killed):
            query.commit(messages)
    if is_aborted:
        query.abort(messages)
    query.run(1, 3)
    query.run(2)
    assert query.visible() == expected(3)
    assert open_transactions(query) == []


def kill_at(patch, verb: str, fails_after: bool) -> None:
    real = getattr(BrokerLedger, verb)

    async def dying(self, *arguments):
        if fails_after:
            await real(self, *arguments)
        raise Killed

    patch.setattr(BrokerLedger, verb, dying)


def open_transactions(query: Query) -> list[str]:
    with SyncClient(query.bootstrap_servers) as client:
        pattern = f"{query.name}.*"
        found = client.run(lambda cluster: Transactions(cluster).find(states=["Ongoing"], pattern=pattern))
    return [view.transactional_id for view in found]


def test_the_commit_aborts_the_transaction_of_a_lost_attempt(query):
    query.task(0, 0, [arrow(rows_of(0)[0::2])])
    query.run(0)
    assert query.visible() == expected(1)
    assert open_transactions(query) == []


def test_a_task_that_fails_leaves_nothing_open(query):
    def fail():
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        query.task(0, 0, interrupted(0, fail))
    assert open_transactions(query) == []


def test_a_batch_whose_other_task_failed_is_undone(query):
    messages = [*query.write(0, 2), None]
    query.abort(messages)
    assert open_transactions(query) == []
    query.run(0)
    assert query.visible() == expected(1)


def test_a_zombie_task_cannot_write_after_its_batch_is_committed(query):
    query.settings["kafka.batch.size"] = "1"
    with pytest.raises(PipelineError):
        query.task(0, 0, interrupted(0, lambda: query.run(0)))
    query.run(1)
    assert query.visible() == expected(2)


def test_a_late_transaction_of_a_zombie_task_is_aborted_by_the_next_batch(query):
    query.task(0, 0, interrupted(0, lambda: query.run(0)))
    query.run(1)
    assert query.visible() == expected(2)
    assert open_transactions(query) == []


def test_a_broker_that_restarts_while_rows_are_written_and_before_they_are_committed(query, runnel):
    message = query.task(0, 0, interrupted(0, runnel.restart))
    runnel.restart()
    query.commit([message])
    assert query.visible() == expected(1)


def end_behind_the_back(query: Query, message) -> None:
    with SyncClient(query.bootstrap_servers) as client:
        identity = message.part.transactional_id, message.part.producer_id, message.part.producer_epoch
        client.run(lambda cluster: Transactions(cluster).abort(*identity))


def test_a_part_that_timed_out_before_the_commit_point_fails_the_batch(query):
    messages = query.write(0, 2)
    end_behind_the_back(query, messages[1])
    with pytest.raises(NotDecided, match="no longer open"):
        query.commit(messages)
    query.abort(messages)
    assert not query.visible()
    query.run(0)
    assert query.visible() == expected(1)


def test_a_batch_whose_parts_all_timed_out_after_the_commit_point_is_written_again(query, monkeypatch):
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", fails_after=True)
        query.commit(messages)
    for message in messages:
        end_behind_the_back(query, message)
    with pytest.raises(NotDecided, match="timed out before it became visible"):
        query.run(0, 3)
    query.run(0, 3)
    assert query.visible() == expected(1)


def test_a_part_that_timed_out_after_the_commit_point_is_reported(query, monkeypatch):
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", fails_after=True)
        query.commit(messages)
    end_behind_the_back(query, messages[0])
    with pytest.raises(InDoubt, match="1 of 2 parts of batch 0 timed out"):
        query.run(0)
    query.settings["inDoubt"] = "skip"
    query.run(0)
    assert query.visible() == Counter(rows_of(0)[1::2])


def test_a_commit_whose_parts_time_out_at_once_revokes_its_marker(query, monkeypatch):
    messages = query.write(0, 2)
    decide = BrokerLedger.write

    async def decide_and_lose(self, claim, marker):
        claim = await decide(self, claim, marker)
        for part in marker.parts:
            await self.abort(part)
        return claim

    with monkeypatch.context() as patch, pytest.raises(NotDecided, match="timed out before it became"):
        patch.setattr(BrokerLedger, "write", decide_and_lose)
        query.commit(messages)
    query.run(0, 3)
    assert query.visible() == expected(1)


def test_parts_with_an_unknown_outcome_wait_for_an_operator(query, monkeypatch):
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", fails_after=True)
        query.commit(messages)

    async def forget(cluster: Cluster) -> None:
        transactions = Transactions(cluster)
        for part in (message.part for message in messages):
            await transactions.commit(part.transactional_id, part.producer_id, part.producer_epoch)
            # The coordinator keeps the latest holder only.
            await transactions.init_producer_id(part.transactional_id, timeout_ms=10_000)

    with SyncClient(query.bootstrap_servers) as client:
        client.run(forget)
    with pytest.raises(InDoubt, match=r"2 of 2 parts of batch 0 ended, but their outcome is no longer known"):
        query.run(0)
    query.settings["inDoubt"] = "skip"
    query.run(0)
    assert query.visible() == expected(1)


def test_continuing_after_a_failed_commit_loses_no_committed_rows(query, monkeypatch):
    query.is_sequential = False
    query.run(0)
    messages = query.write(1, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "commit", fails_after=False)
        query.commit(messages)
    query.run(2, 3)
    query.run(3)
    assert query.visible() == expected(4)
    assert open_transactions(query) == []
    assert note_of(query).is_ended


def note_of(query: Query) -> CommitMarker:
    with SyncClient(query.bootstrap_servers) as client:
        marker = client.run(lambda cluster: BrokerLedger(cluster, query.name).read())
    assert marker is not None
    return marker


def numbered(query: Query, version: int, **options: str) -> None:
    given = {"kafka.bootstrap.servers": query.bootstrap_servers, "topic": query.topic, "txnAppId": query.name}
    schema = StructType([StructField("value", BinaryType())])
    writer = BatchWriter(write_options({**given, "txnVersion": str(version), **options}), schema)
    writer.commit([writer.write(iter([arrow(rows_of(version))]))])


def test_one_version_is_written_to_several_topics_once_each(new_query):
    other = Query(new_query.bootstrap_servers, f"{new_query.topic}-copy", new_query.name)
    for query in (new_query, other, new_query, other):
        numbered(query, 17)
    assert new_query.visible() == other.visible() == Counter(rows_of(17))


def test_a_declared_first_version_cannot_be_skipped(new_query):
    with pytest.raises(InDoubt, match="batch 1, but the broker has no commit marker for an earlier one"):
        numbered(new_query, 1, txnFirstVersion="0")
    for version in (0, 1):
        numbered(new_query, version, txnFirstVersion="0")
    assert new_query.visible() == expected(2)


def test_an_unavailable_broker_ends_the_scan_for_orphaned_transactions(runnel, monkeypatch):
    monkeypatch.setattr("runnel.pipelines.sink.ledger.SCAN_TIMEOUT_S", 0.5)
    with SyncClient(runnel.bootstrap_servers) as client:
        runnel.stop()
        assert client.run(lambda cluster: BrokerLedger(cluster, "q").other_open_parts([])) == []


def test_two_drivers_of_one_query_write_a_batch_once(query):
    old, new = query.write(0, 2), query.write(0, 3)
    query.commit(new)
    query.commit(old)
    query.run(1)
    assert query.visible() == expected(2)
    with pytest.raises(InDoubt, match="batch 1 is already committed"):
        query.commit(old)


def test_abort_after_a_failed_commit_keeps_committed_parts(query, monkeypatch):
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", fails_after=True)
        query.commit(messages)
    query.abort(messages)
    query.run(0, 3)
    assert query.visible() == expected(1)


def test_a_commit_marker_in_an_open_transaction_does_not_block_the_replay(query, monkeypatch):
    """The commit marker is sent, but its transaction is not ended: the outcome is unknown."""
    monkeypatch.setattr("runnel.pipelines.sink.ledger.STABLE_TIMEOUT_S", 0.5)
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):

        async def dying(self, *arguments):
            if arguments[0] == query.name:
                raise Killed
            return await end(self, *arguments)

        end = Transactions.commit
        patch.setattr(Transactions, "commit", dying)
        query.commit(messages)
    query.run(0, 3)
    query.run(1)
    assert query.visible() == expected(2)


def test_ids_are_used_again_by_later_batches(new_query):
    for batch in range(5):
        new_query.run(batch, 3)
    with SyncClient(new_query.bootstrap_servers) as client:
        ids = client.run(lambda cluster: Transactions(cluster).find(pattern=f"{new_query.name}.*"))
    # Two for each task in turn, as ids in the commit marker are reserved, and one for the driver.
    assert len(ids) == 7


def test_a_note_of_very_many_parts_is_kept_in_pieces(new_query, monkeypatch):
    monkeypatch.setattr("runnel.pipelines.sink.commit_markers.PIECE_CHARACTERS", 90)
    new_query.run(0, 3)
    new_query.run(1, 4)
    new_query.run(1, 4)
    assert new_query.visible() == expected(2)


def test_an_unreachable_broker_is_reported(runnel):
    with runnel.client() as client:
        client.create_topic("out")
    query = Query(runnel.bootstrap_servers)
    messages = query.write(0, 1)
    runnel.stop()
    query.settings["kafka.delivery.timeout.ms"] = "300"
    with pytest.raises(BrokerUnreachable, match="no broker available"):
        query.commit(messages)


def test_a_batch_that_is_too_large_for_its_topic_names_the_option_to_lower(new_query):
    with SyncClient(new_query.bootstrap_servers) as client:
        client.create_topic(f"{new_query.topic}-small", settings={"max.message.bytes": "500"})
    new_query.topic += "-small"
    values = ["x" * 100] * 20
    with pytest.raises(PipelineError, match=r"lower the option kafka\.batch\.size"):
        new_query.task(0, 0, [arrow(values)])
    new_query.settings["kafka.batch.size"] = "400"
    new_query.commit([new_query.task(0, 0, [arrow(values)])])
    assert new_query.visible() == Counter(values)


@pytest.mark.runnel({"transaction.max.timeout.ms": 45_000})
def test_a_timeout_that_the_broker_does_not_allow_is_refused_and_the_default_is_lowered(runnel):
    with runnel.client() as client:
        client.create_topic("out")
    query = Query(runnel.bootstrap_servers)
    query.settings["transactionTimeoutMs"] = "45001"
    with pytest.raises(BadOption, match=r"transactionTimeoutMs=45001 .* transaction\.max\.timeout\.ms=45000"):
        query.write(0, 1)
    query.settings["transactionTimeoutMs"] = "45000"
    query.run(0)
    del query.settings["transactionTimeoutMs"]
    query.run(1)
    assert query.visible() == expected(2)
