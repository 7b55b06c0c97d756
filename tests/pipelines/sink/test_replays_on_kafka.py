"""The same with Apache Kafka as the broker: its markers come late, and its timeouts are real."""

import time
from uuid import uuid4

import pytest

from runnel.client import SyncClient
from runnel.pipelines.sink.decision import NotDecided
from tests.pipelines.sink.stage import Query, arrow, expected, rows_of
from tests.pipelines.sink.test_replays import Killed, kill_at, note_of, open_transactions

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def query(apache_kafka: str) -> Query:
    topic = f"out-{uuid4().hex}"
    with SyncClient(apache_kafka) as client:
        client.create_topic(topic, partitions=3)
    return Query(apache_kafka, topic)


def check(query: Query, batches: int) -> None:
    """Kafka answers a commit before its markers are in the log: give them a moment."""
    deadline = time.monotonic() + 20
    while query.visible() != expected(batches) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert query.visible() == expected(batches)
    assert open_transactions(query) == []


@pytest.mark.parametrize("dies_after", [False, True])
@pytest.mark.parametrize("verb", ["claim", "write", "commit", "abort"])
def test_a_commit_that_dies_at_any_step_is_finished_or_written_again(query, monkeypatch, verb, dies_after):
    query.run(0)
    query.task(1, 0, [arrow(rows_of(1)[0::2])])
    messages = query.write(1, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, verb, dies_after)
        query.commit(messages)
    query.abort(messages)
    query.run(1, 3)
    query.run(2)
    check(query, 3)


def test_a_decision_that_timed_out_is_revoked_and_the_batch_written_again(query, monkeypatch):
    query.settings["transactionTimeoutMs"] = "10000"
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", dies_after=True)
        query.commit(messages)
    deadline = time.monotonic() + 60
    while open_transactions(query) and time.monotonic() < deadline:
        time.sleep(0.5)
    with pytest.raises(NotDecided, match="timed out before it could be made visible"):
        query.run(0, 3)
    query.run(0, 3)
    check(query, 1)


def test_a_program_that_continues_after_a_failed_commit_loses_nothing_decided(query, monkeypatch):
    query.is_in_step = False
    query.run(0)
    messages = query.write(1, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "commit", dies_after=False)
        query.commit(messages)
    query.run(2, 3)
    query.run(3)
    check(query, 4)
    assert note_of(query).is_ended
