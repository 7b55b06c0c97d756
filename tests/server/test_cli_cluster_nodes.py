"""`runnel cluster` against clusters of several nodes."""

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster_admin import ClusterAdmin
from runnel.server.cli import cluster_status
from runnel.server.layers import BadSettings
from runnel.server.local_nodes import check_folders, worker_settings
from runnel.server.ports import free_ports
from runnel.testing import Broker, BrokerNode
from tests.server.cli import CommandLine


@pytest.fixture(scope="module")
def three() -> Iterator[Broker]:
    with Broker(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def run(
    three: Broker, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandLine]:
    """The command line against three running nodes; the topics of a test are deleted after it."""
    command = CommandLine(three.bootstrap_servers, capfd, tmp_path, monkeypatch)
    yield command
    for node in three.nodes:
        if not node.is_running:
            node.start()
    for topic in command.ok("topic", "list", "--json").json:
        command.ok("topic", "delete", topic["topic"], "--yes")
    until(lambda: all(not broker["fenced"] for broker in status(command)["brokers"]))


def status(run: CommandLine) -> Any:
    return run.ok("cluster", "status", "--json").json


def replicas(run: CommandLine) -> dict[int, int]:
    return {broker["id"]: broker["replicas"] for broker in status(run)["brokers"]}


def until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def test_a_stopped_node_is_shown_as_fenced_and_its_partitions_as_under_replicated(run, three, name):
    run.ok("topic", "create", name, "--partitions", "2", "--replication-factor", "3")
    run.ok("topic", "create", f"{name}-single", "--partitions", "3", "--replication-factor", "1")
    whole = status(run)
    assert [voter["id"] for voter in whole["quorum"]["voters"]] == [1, 2, 3]
    assert whole["under_replicated"] == whole["under_min_isr"] == whole["offline"] == []
    assert [broker["fenced"] for broker in whole["brokers"]] == [False] * 3
    stopped = next(node for node in three.nodes if node.node_id != whole["quorum"]["leader"])
    stopped.stop()
    found = status(run)
    assert [broker["id"] for broker in found["brokers"] if broker["fenced"]] == [stopped.node_id]
    assert [each for each in found["under_replicated"] if "single" not in each] == [f"{name}-0", f"{name}-1"]
    assert len(found["offline"]) == 1 and found["offline"][0].startswith(f"{name}-single-")
    assert found["under_min_isr"] == found["offline"], "min.insync.replicas is 2, of one replica 1"
    shown = run.ok("cluster", "status").out
    assert f"offline           1: {found['offline'][0]}" in shown and "fenced" in shown
    stopped.start()
    until(lambda: status(run)["under_replicated"] == [])


def test_the_state_is_shown_without_a_majority_of_the_controllers(run, three, name, monkeypatch):
    monkeypatch.setattr(cluster_status, "QUORUM_TIMEOUT_S", 1.0)
    run.ok("topic", "create", name, "--partitions", "2")
    third = three.bootstrap_servers.split(",")[2]
    until(lambda: name in run.ok("topic", "list", "--bootstrap-server", third).out)
    for node in three.nodes[:2]:
        node.kill()
    # A leader resigns after a moment without a majority.
    until(lambda: status(run)["quorum"]["leader"] == -1)
    found = status(run)
    assert (found["quorum"]["voters"], found["partitions"]) == ([], 2)
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
    assert "none: a majority of the controllers does not answer" in run.ok("cluster", "status").out
    for node in three.nodes[:2]:
        node.start()
    until(lambda: status(run)["under_replicated"] == [])


def test_a_replication_factor_is_raised_and_reduced(run, name):
    run.ok("topic", "create", name, "--partitions", "2", "--replication-factor", "1")
    run.ok("produce", name, stdin="a\n")
    run.ok("topic", "alter", name, "--replication-factor", "3")
    assert replicas(run) == {1: 2, 2: 2, 3: 2}
    assert status(run)["under_replicated"] == []
    run.ok("topic", "alter", name, "--replication-factor", "2")
    assert sum(replicas(run).values()) == 4
    assert run.ok("consume", name).lines == ["a"]


def test_a_node_is_drained_removed_and_returns(run, three, name):
    run.ok("topic", "create", name, "--partitions", "6", "--replication-factor", "2")
    run.ok("produce", name, stdin="a\nb\nc\n")
    planned = run.ok("cluster", "drain", "3", "--dry-run").out
    assert f"{name}-" in planned and replicas(run)[3] == 4
    run.ok("cluster", "drain", "3", "--throttle", "10M", "--yes")
    found = status(run)
    assert replicas(run) == {1: 6, 2: 6, 3: 0}
    assert found["reassigning"] == found["under_replicated"] == []
    for resource in (["topic", name], ["broker", "1"]):
        assert "throttled" not in run.ok("config", "describe", *resource).out
    still_running = run.fails("cluster", "drain", "3", "--unregister", "--yes").err
    assert "stop it first" in still_running
    three.nodes[2].stop()
    run.ok("cluster", "drain", "3", "--unregister", "--yes")
    assert [broker["id"] for broker in status(run)["brokers"]] == [1, 2]
    assert "node 3 is not a broker of this cluster (brokers: 1, 2)" in run.fails("cluster", "drain", "3").err
    # With its directory, or an empty one, it may register again.
    three.nodes[2].start()
    run.ok("cluster", "rebalance", "--yes")
    assert replicas(run) == {1: 4, 2: 4, 3: 4}
    assert sorted(run.ok("consume", name).lines) == ["a", "b", "c"]


def test_a_drain_that_is_impossible_moves_nothing(run, name):
    run.ok("topic", "create", name, "--partitions", "2", "--replication-factor", "3")
    run.ok("topic", "create", f"{name}-other", "--partitions", "3", "--replication-factor", "1")
    before = replicas(run)
    error = run.fails("cluster", "drain", "1", "--yes").err
    assert f"2 partitions have replicas on all other brokers, for example {name}-0: add a broker" in error
    assert replicas(run) == before


def test_topics_that_are_created_during_a_drain_are_moved_too(run, name, monkeypatch):
    run.ok("topic", "create", name, "--partitions", "3", "--replication-factor", "1")
    reassign = ClusterAdmin.reassign
    created: list[str] = []

    async def while_a_topic_is_created(self, wanted):
        await reassign(self, wanted)
        if not created:
            created.append(f"{name}-late")
            await Admin(self._cluster).create_topic(created[0], partitions=3, replication_factor=1)

    monkeypatch.setattr(ClusterAdmin, "reassign", while_a_topic_is_created)
    run.ok("cluster", "drain", "2", "--yes")
    assert created
    assert replicas(run)[2] == 0


def test_the_voters_of_a_static_quorum_cannot_be_changed(run):
    for arguments in (["add-voter", "4", "--endpoint", "CONTROLLER://a:1"], ["remove-voter", "3", "--yes"]):
        error = run.fails("cluster", *arguments).err
        assert "the quorum is static" in error and "kraft.version=1" in error
    assert len(status(run)["quorum"]["voters"]) == 3


def controllers(folder: Path) -> tuple[BrokerNode, BrokerNode]:
    """The founder of a dynamic quorum, also a broker, and another controller."""
    client, first, second = free_ports("127.0.0.1", 3)
    common = {
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{first}",
        "controller.listener.names": "CONTROLLER",
    }
    founder = {
        **common,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{first}",
        "log.dirs": str(folder / "1"),
    }
    other = {
        **common,
        "process.roles": "controller",
        "node.id": "2",
        "listeners": f"CONTROLLER://127.0.0.1:{second}",
        "log.dirs": str(folder / "2"),
    }
    return BrokerNode(founder), BrokerNode(other)


def test_voters_are_added_and_removed(tmp_path: Path, capfd, monkeypatch) -> None:
    founder, other = controllers(tmp_path)
    run = CommandLine(f"127.0.0.1:{founder.start()}", capfd, tmp_path, monkeypatch)
    try:
        endpoint = ["--endpoint", other.settings["listeners"]]
        missing = run.fails("cluster", "add-voter", "2", *endpoint).err
        assert "node 2 is not among the observers of the quorum (none): start it first" in missing
        other.start()
        until(lambda: [each["id"] for each in status(run)["quorum"]["observers"]] == [2])
        run.ok("cluster", "add-voter", "2", *endpoint)
        assert [each["id"] for each in status(run)["quorum"]["voters"]] == [1, 2]
        assert "node 2 is already a voter" in run.fails("cluster", "add-voter", "2", *endpoint).err
        assert (
            "node 7 is not among the voters of the quorum (1, 2)"
            in run.fails("cluster", "remove-voter", "7", "--yes").err
        )
        run.ok("cluster", "remove-voter", "2", "--yes")
        until(lambda: [each["id"] for each in status(run)["quorum"]["voters"]] == [1])
        run.fails("cluster", "remove-voter", "1", "--yes")
        assert [each["id"] for each in status(run)["quorum"]["voters"]] == [1]
    finally:
        other.stop()
        founder.stop()


@pytest.fixture
def first_port() -> Iterator[int]:
    """The first of four consecutive ports, reserved as `free_ports` reserves: those of two workers."""
    for _ in range(100):
        with ExitStack() as reserved:
            first = 0
            try:
                for number in range(4):
                    each = reserved.enter_context(socket.socket())
                    each.bind(("127.0.0.1", first and first + number))
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    first = first or each.getsockname()[1]
            except OSError:
                continue
            yield first
            return
    pytest.fail("no four consecutive ports are free")


def test_a_single_node_gets_a_worker_and_loses_it_again(
    first_port: int, tmp_path: Path, capfd, monkeypatch
) -> None:
    folder = tmp_path / "data"
    alone = {"node.id": "1", "listeners": f"PLAINTEXT://127.0.0.1:{first_port}", "log.dirs": str(folder)}
    alone |= {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    alone["admin.listeners"] = "off"
    run = CommandLine(f"127.0.0.1:{first_port}", capfd, tmp_path, monkeypatch)

    @contextmanager
    def running(nodes: list[dict[str, str]]) -> Iterator[None]:
        started = [BrokerNode(static) for static in nodes]
        try:
            for node in started:
                node.start()
            yield
        finally:
            for node in reversed(started):
                node.stop()

    with running([alone]):
        run.ok("topic", "create", "t", "--partitions", "4")
        run.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(20)))
        run.ok("consume", "t", "--group", "g", "--max", "5")
    with running(worker_settings(alone, 2)):
        run.ok("cluster", "rebalance", "--yes")
        assert replicas(run) == {1: 4, 2: 4}
        assert len(run.ok("consume", "t").lines) == 20
        assert len(run.ok("consume", "t", "--group", "g").lines) == 15
    # It would be missing.
    with pytest.raises(BadSettings, match="start 2 workers, or first move its replicas away"):
        check_folders(str(folder), 1)
    with running(worker_settings(alone, 2)):
        run.ok("cluster", "drain", "2", "--yes")
    shutil.rmtree(f"{folder}-worker-2")
    with running([alone]):
        assert replicas(run) == {1: 8, 2: 0}
        assert len(run.ok("consume", "t").lines) == 20
        run.ok("cluster", "drain", "2", "--unregister", "--yes")
        assert replicas(run) == {1: 8}
