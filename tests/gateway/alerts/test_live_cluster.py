"""Alerts over the metrics of three nodes of which some fail: one cluster, all rules that need one."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import ClusterAdmin
from runnel.client.errors import ClientError
from runnel.client.producer import Producer
from runnel.gateway.alerts import evaluator as module
from runnel.gateway.alerts.evaluator import Evaluator
from runnel.model.ids import TopicPartition
from runnel.observe.alerts.rules import CONTROLLERS
from runnel.server.ports import free_ports
from runnel.testing import Broker, BrokerNode
from tests.gateway.alerts.live import SETTLE_S, faster, heard, options, until_heard
from tests.gateway.alerts.servers import Webhook, webhook
from tests.gateway.alerts.test_evaluator import eventually, played, running

pytestmark = [pytest.mark.slow, pytest.mark.long]

VOTERS = "controller.quorum.voters"
FAST = {
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 100,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.timeout.ms": 500,
}


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    monkeypatch.setattr(module, "LEASE_MIN_S", 1.0)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


async def all_scraped(evaluator: Evaluator) -> None:
    def is_complete() -> bool:
        snapshot = evaluator.alerting.history.snapshot
        return len(snapshot.brokers) == 3 and not snapshot.missing

    await eventually(is_complete, SETTLE_S)


async def attempts(cluster: Cluster, topic: str, acks: str) -> None:
    """Records that are written all the time, or rejected."""
    async with Producer(cluster, acks=acks, delivery_timeout_s=0.5) as producer:
        while True:
            with suppress(ClientError):
                await producer.send_and_wait(topic, b"x", partition=0)
            await asyncio.sleep(0.01)


def test_a_node_that_is_killed_and_returns(hook: Webhook) -> None:
    """All that follows from it is reported, and resolved when the node is back."""
    expected = {
        "BrokerDown",
        "BrokerFenced",
        "UnderReplicatedPartitions",
        "UnderMinIsrPartitions",
        "OfflinePartitions",
        "FollowerBehind",
        "ReplicationLagHigh",
        "AvailabilityBurnFast",
        "AvailabilityBurnSlow",
    }
    over_time = {"AvailabilityBurnFast", "AvailabilityBurnSlow", "ElectionSlow"}
    settings = {"default.replication.factor": 3, "min.insync.replicas": 3}
    thresholds = {
        "alerts.ElectionSlow.seconds": "0.000001",
        "alerts.FollowerBehind.seconds": "1",
        # Internal topics have series as well, and those of a quiet follower are 0.
        "alerts.ReplicationLagHigh.seconds": "0.2",
    }

    async def scenario(nodes: Broker) -> None:
        async with (
            Cluster(nodes.bootstrap_servers) as cluster,
            running(options(nodes, hook, **thresholds)) as evaluator,
        ):
            await all_scraped(evaluator)
            await asyncio.to_thread(nodes.nodes[2].kill)
            writing = [asyncio.create_task(attempts(cluster, "orders", acks)) for acks in ("1", "all")]
            await until_heard(hook, "firing", {*expected, "ElectionSlow"})
            await asyncio.to_thread(nodes.nodes[2].start)
            await until_heard(hook, "resolved", expected - over_time)
            # Rules that look back: nothing has failed, and none was elected, for hours.
            async with faster(evaluator, 3600):
                await until_heard(hook, "resolved", over_time)
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)

    with Broker(settings, nodes=3, admin=True) as nodes:
        with nodes.client() as client:
            client.send("orders", b"x")
            # One partition of it is only on the node that is killed.
            client.run(lambda each: Admin(each).create_topic("single", partitions=3, replication_factor=1))
        played(lambda: scenario(nodes))


def test_an_unclean_election(hook: Webhook) -> None:
    where = TopicPartition("risky", 0)

    async def scenario(nodes: Broker) -> None:
        async with Cluster(nodes.bootstrap_servers) as cluster, running(options(nodes, hook)) as evaluator:
            admin = Admin(cluster)
            await admin.create_topic(where.topic, replication_factor=2, settings={"min.insync.replicas": "1"})
            await all_scraped(evaluator)
            view = await admin.topic(where.topic)
            leader, follower = (nodes.nodes[node - 1] for node in view.partitions[0].replicas)
            await asyncio.to_thread(follower.kill)
            await _in_sync(cluster, where, 1)
            async with Producer(cluster) as producer:
                await producer.send_and_wait(where.topic, b"on the leader only", partition=0)
            await asyncio.to_thread(leader.kill)
            await asyncio.to_thread(follower.start)
            await until_heard(hook, "firing", {"OfflinePartitions"})
            assert "UncleanLeaderElection" not in heard(hook, "firing")
            await ClusterAdmin(cluster).elect_unclean(where)
            await until_heard(hook, "firing", {"UncleanLeaderElection"})
            await asyncio.to_thread(leader.start)
            await until_heard(hook, "resolved", {"OfflinePartitions"})
            async with faster(evaluator, 3600):
                await until_heard(hook, "resolved", {"UncleanLeaderElection"})

    with Broker({**FAST, "min.insync.replicas": 1}, nodes=3, admin=True) as nodes:
        played(lambda: scenario(nodes))


async def _in_sync(cluster: Cluster, where: TopicPartition, count: int) -> None:
    async with asyncio.timeout(SETTLE_S):
        while len((await Admin(cluster).topic(where.topic)).partitions[where.partition].in_sync) != count:
            await asyncio.sleep(0.1)


class Link:
    """The way to the controller of a node, which can be cut."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Connections end, and new ones end at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.close()

    def mend(self) -> None:
        self._is_cut = False

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(OSError):
                if not self._is_cut:
                    await self._connect(reader, writer)
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers.add(onward)
        try:
            await asyncio.gather(self._pour(reader, onward), self._pour(there, writer))
        finally:
            onward.close()
            self._writers.discard(onward)

    async def _pour(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        target.close()


def linked(settings: Mapping[str, str], links: Mapping[str, Link]) -> dict[str, str]:
    """Others learn of the controller of a node by its link only."""
    client = settings["listeners"].partition(",")[0]
    port = links[settings["node.id"]].port
    return {"advertised.listeners": f"{client},CONTROLLER://127.0.0.1:{port}"}


def test_controllers_that_do_not_reach_each_other(hook: Webhook, tmp_path: Path) -> None:
    """All nodes serve and are scraped, but none is the active controller."""

    async def scenario() -> None:
        nodes = Broker(FAST, nodes=3, admin=True, data_dir=tmp_path)
        settings = nodes._cluster_settings(str(tmp_path))
        listed = [each.partition("@") for each in settings[0][VOTERS].split(",")]
        links = {node: Link(int(address.rpartition(":")[2])) for node, _, address in listed}
        for link in links.values():
            await link.open()
        voters = ",".join(f"{node}@127.0.0.1:{link.port}" for node, link in links.items())
        nodes.nodes = [BrokerNode({**each, VOTERS: voters, **linked(each, links)}) for each in settings]
        async with nodes, running(options(nodes, hook)) as evaluator:
            await all_scraped(evaluator)
            for link in links.values():
                link.cut()
            await until_heard(hook, "firing", {"ControllerCount"})
            for link in links.values():
                link.mend()
            await until_heard(hook, "resolved", {"ControllerCount"})
        for link in links.values():
            link.close()
        # Their connections end in tasks.
        await asyncio.sleep(0.1)

    played(scenario)


async def rounds(evaluator: Evaluator, count: int) -> None:
    """Wait for evaluations."""
    for _ in range(count):
        before = evaluator.alerting.history.at_ms
        async with asyncio.timeout(SETTLE_S):
            while evaluator.alerting.history.at_ms <= before:
                await asyncio.sleep(0.02)


def separate_nodes(folder: Path) -> tuple[BrokerNode, BrokerNode, int]:
    """A controller that is no broker, a broker that is no controller, and the broker's port."""
    client, quorum = free_ports("127.0.0.1", 2)
    common = {
        "controller.listener.names": "CONTROLLER",
        VOTERS: f"7@127.0.0.1:{quorum}",
        "admin.listeners": "127.0.0.1:0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }

    def node(number: int, role: str, listener: str) -> BrokerNode:
        own = {"process.roles": role, "node.id": str(number), "listeners": listener}
        return BrokerNode({**common, **own, "log.dirs": str(folder / role)})

    controller = node(7, "controller", f"CONTROLLER://127.0.0.1:{quorum}")
    return controller, node(1, "broker", f"PLAINTEXT://127.0.0.1:{client}"), client


def test_dedicated_controllers_are_not_taken_for_missing_ones(hook: Webhook, tmp_path: Path) -> None:
    """They are no brokers, so their metrics are read only where their addresses are set."""
    controller, broker, port = separate_nodes(tmp_path)
    wrong = {"ControllerCount", "BrokerDown"}

    async def scenario() -> None:
        async with running(options(Broker(port=port), hook)) as evaluator:
            await rounds(evaluator, 5)
        assert not heard(hook, "firing") & wrong
        addresses = {"alerts.admin.addresses": f"7={controller.admin_address}"}
        async with running(options(Broker(port=port), hook, **addresses)) as evaluator:
            await rounds(evaluator, 5)
            assert dict(evaluator.alerting.history.latest(CONTROLLERS)) == {(): 1.0}
            assert not heard(hook, "firing") & wrong
            await asyncio.to_thread(controller.kill)
            await until_heard(hook, "firing", {"BrokerDown"})
            await asyncio.to_thread(controller.start)

    with ThreadPoolExecutor(2) as threads:
        for started in [threads.submit(node.start) for node in (controller, broker)]:
            started.result()
    try:
        played(scenario)
    finally:
        broker.stop()
        controller.stop()
