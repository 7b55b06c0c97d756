"""`runnel txn`, and transactional produce and consume."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from runnel.client import SyncClient, TransactionalProducer
from runnel.client.cluster import Cluster
from runnel.model.ids import TopicPartition
from tests.client.hanging import broker_without_verification, leave_hanging
from tests.server.cli import CommandLine


@pytest.fixture
def opened(run, name) -> Iterator[str]:
    """A transactional id with an open transaction in a topic of the same name."""
    run.ok("topic", "create", name, "--partitions", "2")
    with SyncClient(run.address) as client:

        async def begin(cluster: Cluster) -> TransactionalProducer:
            producer = TransactionalProducer(cluster, name)
            await producer.begin()
            await producer.send_and_wait(name, b"half", partition=1)
            return producer

        producer = client.run(begin)
        yield name
        client.run(lambda cluster: asyncio.gather(producer.close(), return_exceptions=True))


def test_list_filters_by_state_producer_age_and_pattern(run, opened):
    [row] = run.ok("txn", "list", "--id", opened, "--json").json
    assert (row["transactional_id"], row["state"], row["coordinator"]) == (opened, "Ongoing", 1)
    text = run.ok("txn", "list", "--id", opened)
    assert text.lines[0].split() == ["TRANSACTIONAL", "ID", "STATE", "PRODUCER", "ID", "COORDINATOR"]
    producer_id = str(row["producer_id"])
    for filters, count in [
        (("--state", "ongoing"), 1),
        (("--state", "Empty", "--state", "CompleteCommit"), 0),
        (("--producer-id", producer_id), 1),
        (("--producer-id", "987654321"), 0),
        (("--longer-than", "1h"), 0),
    ]:
        assert len(run.ok("txn", "list", "--id", opened, *filters, "--json").json) == count, filters


def test_describe(run, opened):
    view = run.ok("txn", "describe", opened, "--json").json
    assert (view["state"], view["timeout_ms"], view["producer_epoch"]) == ("Ongoing", 60000, 0)
    assert view["partitions"] == [{"topic": opened, "partition": 1}]
    assert view["started"].endswith("Z") and view["started_ms"] > 0
    text = run.ok("txn", "describe", opened).out
    assert f"{opened}:1" in text and "ago)" in text


def test_abort_by_id_fences_and_unblocks_readers(run, opened):
    run.ok("produce", opened, "after", "-p", "1")
    assert run.ok("consume", opened).lines == ["half", "after"]
    assert run.ok("consume", opened, "--isolation", "read_committed").lines == []
    refused = run("txn", "abort", opened)
    assert refused.code == 2 and "--yes" in refused.err
    run.ok("txn", "abort", opened, "--yes")
    assert run.ok("consume", opened, "--isolation", "read_committed").lines == ["after"]
    assert run.ok("consume", opened, "-i", "read_committed", "--group", opened).lines == ["after"]
    again = run("txn", "abort", opened, "--yes")
    assert again.code == 1 and "has no open transaction" in again.err


def test_find_and_abort_hanging_transactions_only(capfd, tmp_path, monkeypatch):
    with broker_without_verification() as broker, broker.client() as client:
        run = CommandLine(broker.bootstrap_servers, capfd, tmp_path, monkeypatch)
        run.ok("topic", "create", "t", "other")
        run.ok("produce", "t", "before")
        where = TopicPartition("t", 0)
        now_ms = int(time.time() * 1000)
        client.run(lambda cluster: leave_hanging(cluster, where, 4711, timestamp_ms=now_ms))
        run.ok("produce", "t", "behind")
        assert run.ok("consume", "t", "-i", "read_committed").lines == ["before"]
        assert run.ok("txn", "find-hanging").out == ""
        assert run.ok("txn", "find-hanging", "--silent", "0s", "--topic", "other", "--json").json == []
        [row] = run.ok("txn", "find-hanging", "--silent", "0s", "--json").json
        assert (row["topic"], row["partition"], row["start_offset"], row["producer_id"]) == ("t", 0, 1, 4711)
        assert "4711" in run.ok("txn", "find-hanging", "--silent", "0s").out
        place = ("txn", "abort", "--topic", "t", "--partition", "0", "--yes", "--start-offset")
        wrong = run(*place, "0")
        assert wrong.code == 1 and "no open transaction in t-0 starts at offset 0" in wrong.err
        run.ok(*place, "1")
        assert run.ok("consume", "t", "-i", "read_committed").lines == ["before", "behind"]
        assert run.ok("txn", "find-hanging", "--silent", "0s", "--json").json == []


def test_transaction_known_to_its_coordinator_is_not_aborted_by_offset(run, opened):
    outcome = run("txn", "abort", "-t", opened, "-p", "1", "--start-offset", "0", "--yes")
    assert outcome.code == 1 and "is not hanging" in outcome.err
    assert run.ok("txn", "describe", opened, "--json").json["state"] == "Ongoing"


def test_produce_is_one_transaction(run, name):
    run.ok("topic", "create", name, "--set", "max.message.bytes=1000")
    run.ok("produce", name, "a", "b", "--transactional-id", name)
    assert run.ok("txn", "describe", name, "--json").json["state"] == "CompleteCommit"
    for arguments, stdin, expected in [
        (("--json",), '{"value": "c"}\nnonsense\n', "not JSON"),
        ((), "d\n" + "x" * 2000 + "\n", "MESSAGE_TOO_LARGE"),
    ]:
        outcome = run("produce", name, "--transactional-id", name, *arguments, stdin=stdin)
        assert outcome.code == 1 and expected in outcome.err
        assert outcome.err.count("\n") == 1
    run.ok("produce", name, "--transactional-id", name, stdin="e\nf\n")
    assert run.ok("consume", name, "--isolation", "read_committed").lines == ["a", "b", "e", "f"]
    assert run.ok("consume", name, "-i", "read_committed", "--from", "-3").lines == ["e", "f"]


def test_errors(run, name):
    for arguments, code, expected in [
        (("txn", "describe", name), 1, "the transactional id does not exist"),
        (("txn", "abort", name, "--yes"), 1, "the transactional id does not exist"),
        (("txn", "abort"), 2, "specify a TRANSACTIONAL_ID"),
        (("txn", "abort", name, "--topic", name), 2, "specify a TRANSACTIONAL_ID"),
        (("txn", "abort", "--topic", name, "--partition", "0"), 2, "specify a TRANSACTIONAL_ID"),
        (("txn", "list", "--id", "("), 1, "regular expression"),
        (("txn", "list", "--state", "nonsense"), 2, "nonsense"),
        (("txn", "list", "--longer-than", "soon"), 2, "is not a duration"),
        (("txn", "find-hanging", "--topic", f"{name}-x"), 1, "does not exist"),
        (("produce", name, "x", "--transactional-id", name, "--acks", "1"), 2, "--acks all"),
    ]:
        outcome = run(*arguments)
        assert outcome.code == code, (arguments, outcome.err)
        assert expected in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err
