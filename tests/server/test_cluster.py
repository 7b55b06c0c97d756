"""Nodes with roles, in this process: how clusters are founded and joined, and what they survive."""

import asyncio
import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.errors import CorruptBatch
from runnel.broker.runtime import quorum_reports
from runnel.broker.runtime.broker import Broker
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import ClusterAdmin
from runnel.disk.identity import read_identity
from runnel.disk.os_files import OsFiles
from runnel.server import quorum_watch
from runnel.server.local_nodes import cluster_settings
from runnel.server.node import Node
from runnel.server.ports import free_ports
from tests.broker.quorum_world import refused_reads


def settings(folder: Path, count: int = 3) -> list[dict[str, str]]:
    """Nodes of a static quorum that have no cluster id."""
    static = {"admin.listeners": "off"}
    nodes = cluster_settings(
        static, count=count, host="127.0.0.1", port=0, folder=str(folder), cluster_id="unused"
    )
    for node in nodes:
        del node["cluster.id"]
    return nodes


def cluster_id(node: dict[str, str]) -> str:
    identity = read_identity(OsFiles(), node["log.dirs"])
    assert identity is not None
    return identity.cluster_id


async def start(stack: AsyncExitStack, nodes: list[dict[str, str]]) -> list[Node]:
    started = [Node(static) for static in nodes]
    async with asyncio.timeout(60):
        await asyncio.gather(*(stack.enter_async_context(node) for node in started))
    return started


async def active(node: Node, count: int) -> None:
    """Wait until this node sees so many active brokers."""
    async with asyncio.timeout(30), Cluster(node.bootstrap_servers) as cluster:
        while sum(not each.is_fenced for each in (await ClusterAdmin(cluster).describe())[1]) != count:
            await asyncio.sleep(0.05)


def kept_brokers(monkeypatch: pytest.MonkeyPatch) -> list[Broker]:
    """The brokers of all nodes that are started from now on."""
    brokers: list[Broker] = []
    new_broker = Node._new_broker

    def keep(*args: Any) -> Broker:
        brokers.append(new_broker(*args))
        return brokers[-1]

    monkeypatch.setattr(Node, "_new_broker", keep)
    return brokers


def test_nodes_without_a_cluster_id_found_one_cluster(tmp_path: Path) -> None:
    nodes = settings(tmp_path)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            started = await start(stack, nodes)
            for node in started:
                await active(node, 3)
        assert len({cluster_id(node) for node in nodes}) == 1
        # And again, with what is stored.
        async with AsyncExitStack() as stack:
            await start(stack, nodes)

    asyncio.run(scenario())


def test_an_empty_directory_never_founds_a_second_cluster(tmp_path: Path) -> None:
    nodes = settings(tmp_path)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await start(stack, nodes)
        known = cluster_id(nodes[1])
        # The voter that founds clusters returns with an empty directory, before the others.
        shutil.rmtree(nodes[0]["log.dirs"])
        async with AsyncExitStack() as stack:
            empty = Node(nodes[0])
            starting = asyncio.create_task(stack.enter_async_context(empty))
            await asyncio.sleep(1)
            assert not starting.done()
            await start(stack, nodes[1:])
            async with asyncio.timeout(60):
                await starting
            await active(empty, 3)
        assert [cluster_id(node) for node in nodes] == [known] * 3

    asyncio.run(scenario())


def test_a_node_alone_with_another_directory_id_serves_and_can_be_elected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    properties = tmp_path / "meta.properties"

    async def scenario() -> None:
        async with Node(node) as started, Cluster(started.bootstrap_servers) as cluster:
            await Admin(cluster).create_topic("t", partitions=2)
        kept = [line for line in properties.read_text().splitlines() if not line.startswith("directory.id")]
        properties.write_text("\n".join(kept) + "\n")
        brokers = kept_brokers(monkeypatch)
        async with Node(node):
            (broker,) = brokers
            own = broker.disk.directory_id()
            async with asyncio.timeout(20):
                while {
                    directory
                    for state in broker.metadata.image.topics["t"].partitions
                    for directory in state.directories
                } != {own}:
                    await broker.metadata.changed()
            assert own in broker.metadata.image.brokers[broker.node_id].directories
            for state in broker.metadata.image.topics["t"].partitions:
                assert (state.leader, state.isr) == (broker.node_id, (broker.node_id,))

    asyncio.run(scenario())


def test_a_broker_with_damaged_metadata_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = settings(tmp_path)
    brokers = kept_brokers(monkeypatch)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            (sound, *_) = await start(stack, nodes)
            await active(sound, 3)
            damaged = next(
                broker
                for broker in brokers
                if not broker.metadata.is_active and str(broker.node_id) != nodes[0]["node.id"]
            )
            reads = refused_reads(CorruptBatch("damaged"))
            damaged.quorum.read_batches = reads  # type: ignore[method-assign, assignment]
            async with Cluster(sound.bootstrap_servers) as cluster:
                await Admin(cluster).create_topic("t")
            await active(sound, 2)

    asyncio.run(scenario())


def test_separate_controllers_and_brokers(tmp_path: Path) -> None:
    ports = free_ports("127.0.0.1", 3)
    servers = f"127.0.0.1:{ports[0]}"
    common = {"controller.listener.names": "CONTROLLER"}
    controller = {
        **common,
        "process.roles": "controller",
        "node.id": "100",
        "controller.quorum.voters": f"100@{servers}",
        "listeners": f"CONTROLLER://{servers}",
        "log.dirs": str(tmp_path / "controller"),
    }
    brokers = [
        {
            **common,
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.voters": f"100@{servers}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(tmp_path / f"broker-{number}"),
        }
        for number, port in enumerate(ports[1:], 1)
    ]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            started = await start(stack, [controller, *brokers])
            await active(started[1], 2)
            async with Cluster(started[2].bootstrap_servers) as cluster:
                quorum = await ClusterAdmin(cluster).quorum()
            assert [each.node_id for each in quorum.voters] == [100]
            assert sorted(each.node_id for each in quorum.observers) == [1, 2]

    asyncio.run(scenario())


def test_the_settings_that_kafka_ships_found_a_cluster_which_others_join(tmp_path: Path) -> None:
    ports = free_ports("127.0.0.1", 3)
    first = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{ports[1]}",
        "listeners": f"PLAINTEXT://:{ports[0]},CONTROLLER://:{ports[1]}",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://localhost:{ports[0]},CONTROLLER://localhost:{ports[1]}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(tmp_path / "first"),
    }
    second = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": f"localhost:{ports[1]}",
        "listeners": f"PLAINTEXT://localhost:{ports[2]}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(tmp_path / "second"),
    }

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            # The second waits for the first.
            joining = asyncio.create_task(start(stack, [second]))
            await asyncio.sleep(0.3)
            (founder,) = await start(stack, [first])
            await joining
            await active(founder, 2)
        assert cluster_id(first) == cluster_id(second)

    asyncio.run(scenario())


def test_a_node_of_another_cluster_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_watch, "CHECK_SECONDS", 0.2)
    caplog.set_level(logging.WARNING)
    nodes = settings(tmp_path)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await start(stack, [{**node, "cluster.id": "mine"} for node in nodes[:2]])
            foreign = Node({**nodes[2], "cluster.id": "other"})
            starting = asyncio.create_task(stack.enter_async_context(foreign))
            async with asyncio.timeout(30):
                while "this node belongs to the cluster other, but" not in caplog.text:
                    await asyncio.sleep(0.05)
            assert not starting.done()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_leader", [True, False])
def test_two_nodes_with_one_id_are_reported_and_the_second_has_no_effect(
    is_leader: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_reports, "INTERVAL_MS", 200)
    nodes = settings(tmp_path)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            started = await start(stack, nodes)
            async with Cluster(started[0].bootstrap_servers) as cluster:
                before = await ClusterAdmin(cluster).quorum()
                copied = next(
                    node for node in nodes if (int(node["node.id"]) == before.leader_id) is is_leader
                )
                ports = free_ports("127.0.0.1", 2)
                listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
                twin = Node({**copied, "listeners": listeners, "log.dirs": str(tmp_path / "twin")})
                starting = asyncio.create_task(stack.enter_async_context(twin))
                number = copied["node.id"]
                messages = [f"two nodes fetch the metadata with node.id {number}"]
                if is_leader:
                    messages += [f"another node leads the metadata quorum with the node.id {number}"]
                else:
                    messages += [f"another broker with id {number} is registered"]
                    messages += [f"another controller has registered with node.id {number}"]
                async with asyncio.timeout(30):
                    while not all(message in caplog.text for message in messages):
                        await asyncio.sleep(0.05)
                await asyncio.sleep(0.5)
                after = await ClusterAdmin(cluster).quorum()
            assert not starting.done()
            assert (after.leader_id, after.epoch) == (before.leader_id, before.epoch)
            # They do not replace each other's registration without end.
            assert after.high_watermark - before.high_watermark < 20
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(scenario())
    assert not any(record.exc_info for record in caplog.records)
