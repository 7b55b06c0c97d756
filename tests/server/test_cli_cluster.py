"""`runnel cluster` against one broker, and wrong usage."""

from pathlib import Path

import pytest

from runnel.server.cli.cluster_status import _print_choices


def test_status(run, name):
    run.ok("topic", "create", name, "--partitions", "3")
    found = run.ok("cluster", "status", "--json").json
    assert found["quorum"]["leader"] == 1
    assert [voter["id"] for voter in found["quorum"]["voters"]] == [1]
    (broker,) = found["brokers"]
    assert (broker["id"], broker["fenced"]) == (1, False)
    assert broker["leaders"] == broker["replicas"] == found["partitions"] >= 3
    assert found["offline"] == found["under_min_isr"] == found["under_replicated"] == []
    out = run.ok("cluster", "status").out
    assert f"cluster           {found['cluster_id']}" in out
    assert "active" in out and "leader" in out


def test_the_choices_for_an_offline_partition(capsys):
    replica = {"partition": "orders-0", "broker": 2, "state": "active", "in_sync": False, "end_offset": 17}
    gone = {"partition": "orders-0", "broker": 3, "state": "fenced", "in_sync": True, "end_offset": None}
    _print_choices([replica, gone])
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[2:4]] == [
        ["orders-0", "2", "active", "no", "17"],
        ["orders-0", "3", "fenced", "yes", "unknown"],
    ]
    assert "runnel cluster elect orders-0 --unclean" in out


def test_elections(run, name):
    run.ok("topic", "create", name)
    run.ok("cluster", "elect", f"{name}-0")
    assert "ELECTION_NOT_NEEDED" in run.fails("cluster", "elect", f"{name}-0", "--unclean", "--yes").err
    assert "confirm with --yes" in run("cluster", "elect", f"{name}-0", "--unclean").err
    assert "is not a topic and a partition" in run("cluster", "elect", name.replace("-", "")).err


def test_a_single_broker_cannot_be_drained(run, name):
    run.ok("topic", "create", name)
    error = run.fails("cluster", "drain", "1", "--yes").err
    assert "have replicas on all other brokers" in error and "runnel topic alter" in error


def test_a_balanced_cluster_needs_no_moves(run, name):
    run.ok("topic", "create", name, "--partitions", "4")
    assert run.ok("cluster", "rebalance", "--yes").out == ""
    error = run.fails("cluster", "drain", "9", "--yes").err
    assert "node 9 is not a broker of this cluster (brokers: 1)" in error


def test_a_replication_factor_needs_brokers(run, name):
    run.ok("topic", "create", name)
    run.ok("topic", "alter", name, "--replication-factor", "1")
    error = run.fails("topic", "alter", name, "--replication-factor", "2").err
    assert "needs as many brokers, and 1 are active" in error


def test_voters(run):
    assert "node 1 is already a voter" in run.fails("cluster", "add-voter", "1").err
    missing = run("cluster", "add-voter", "7")
    assert (missing.code, "--endpoint" in missing.err) == (2, True)
    static = "the quorum is static"
    assert static in run.fails("cluster", "add-voter", "7", "--endpoint", "CONTROLLER://a:9093").err
    assert static in run.fails("cluster", "remove-voter", "1", "--yes").err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["drain", "1", "--throttle", "fast"], "is not a rate"),
        (["drain", "1", "--throttle", "5M", "--no-wait"], "remove --no-wait"),
        (["drain", "1", "--unregister", "--no-wait"], "--unregister has to wait"),
        (["remove-voter", "1"], "confirm with --yes"),
        (["up", "--listen", "9092"], "is not HOST:PORT"),
        (["up", "--nodes", "0"], "--nodes"),
    ],
)
def test_wrong_usage(run, arguments, complaint):
    ended = run("cluster", *arguments)
    assert (ended.code, complaint in ended.err) == (2, True), ended.err


def test_a_local_cluster_keeps_its_size(run, tmp_path: Path):
    (tmp_path / "node-5").mkdir()
    error = run.fails("cluster", "up", "--data-dir", str(tmp_path), "--nodes", "3").err
    assert "has a cluster of 5 nodes: start it with --nodes 5" in error
