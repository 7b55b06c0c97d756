"""Replays against Apache Kafka, which writes transaction markers asynchronously and enforces timeouts."""

import time
from uuid import uuid4

import pytest

from runnel.client import SyncClient
from runnel.pipelines.sink.decision import NotDecided
from tests.pipelines.sink.stage import Query, arrow, expected, rows_of
from tests.pipelines.sink.test_replays import Killed, kill_at, note_of, open_transactions

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def query(apache_kafka: str) -> Query:
    topic = f"out-{uuid4().hex}"
    with SyncClient(apache_kafka) as client:
        client.create_topic(topic, partitions=3)
    return Query(apache_kafka, topic)


def check(query: Query, batches: int) -> None:
    """Kafka acknowledges a commit before the transaction markers are written: poll for them."""
    deadline = time.monotonic() + 20
    while query.visible() != expected(batches) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert query.visible() == expected(batches)
    assert open_transactions(query) == []


@pytest.mark.parametrize("fails_after", [False, True])
@pytest.mark.parametrize("verb", ["claim", "write", "commit", "abort"])
def test_a_commit_killed_at_any_step_is_completed_or_written_again(query, monkeypatch, verb, fails_after):
    query.run(0)
    query.task(1, 0, [arrow(rows_of(1)[0::2])])
    messages = query.write(1, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, verb, fails_after)
        query.commit(messages)
    query.abort(messages)
    query.run(1, 3)
    query.run(2)
    check(query, 3)


def test_a_commit_marker_whose_parts_timed_out_is_revoked(query, monkeypatch):
    query.settings["transactionTimeoutMs"] = "10000"
    messages = query.write(0, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "write", fails_after=True)
        query.commit(messages)
    deadline = time.monotonic() + 60
    while open_transactions(query) and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(NotDecided, match="timed out before it became visible"):
        query.run(0, 3)
    query.run(0, 3)
    check(query, 1)


def test_continuing_after_a_failed_commit_loses_no_committed_rows(query, monkeypatch):
    query.is_sequential = False
    query.run(0)
    messages = query.write(1, 2)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, "commit", fails_after=False)
        query.commit(messages)
    query.run(2, 3)
    query.run(3)
    check(query, 4)
    assert note_of(query).is_ended
