"""How nodes with empty directories agree on the id of their cluster, over real connections."""

import asyncio
import logging
from dataclasses import replace

import pytest

from runnel.controller.settings import Settings
from runnel.messages.vote import VoteRequest
from runnel.net.listener import Listener
from runnel.net.peers import TcpPeers
from runnel.ports.peers import PeerFailed
from runnel.server import membership, quorum_watch
from runnel.server.greeting import Greeting
from runnel.server.layers import BadSettings
from runnel.server.membership import ClusterIdSearch
from runnel.server.quorum_watch import QuorumWatch
from runnel.server.roles import Roles, roles_of
from runnel.server.shells import SystemEntropy


class Controller:
    """A controller that has not started yet: it answers what it knows, and asks the others."""

    def __init__(self, node_id: int, cluster_id: str = "") -> None:
        self.node_id = node_id
        self.greeting = Greeting()
        self.greeting.cluster_id = cluster_id
        self.listener = Listener(self.greeting, "CONTROLLER")
        self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.accept()
        self.peers = TcpPeers()

    async def find(self, voters: "list[Controller]") -> str:
        found = await ClusterIdSearch(roles(self.node_id, voters), self.peers, SystemEntropy()).find()
        self.greeting.cluster_id = found
        return found

    async def close(self) -> None:
        self.peers.close()
        await self.listener.close(grace_seconds=0)


def roles(node_id: int, voters: list[Controller]) -> Roles:
    listed = ",".join(f"{each.node_id}@127.0.0.1:{each.port}" for each in voters)
    settings = Settings(
        {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": listed,
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://:9093",
        }
    )
    return roles_of(settings)


@pytest.fixture
def three():
    """Runs a scenario with controllers 1, 2 and 3, of which none knows a cluster."""

    def run(scenario) -> None:
        async def whole() -> None:
            nodes = [Controller(node_id) for node_id in (1, 2, 3)]
            try:
                async with asyncio.timeout(30):
                    await scenario(nodes)
            finally:
                for node in nodes:
                    await node.close()

        asyncio.run(whole())

    return run


def test_all_voters_agree_on_a_new_id(three):
    async def scenario(nodes) -> None:
        found = await asyncio.gather(*(node.find(nodes) for node in nodes))
        assert len(set(found)) == 1
        assert len(found[0]) == 22

    three(scenario)


def test_the_id_of_an_existing_cluster_is_adopted_by_all(three):
    async def scenario(nodes) -> None:
        nodes[2].greeting.cluster_id = "existing"
        assert await asyncio.gather(*(node.find(nodes) for node in nodes[:2])) == ["existing"] * 2

    three(scenario)


def test_no_cluster_is_founded_while_a_voter_is_silent(three, caplog, monkeypatch):
    monkeypatch.setattr(membership, "REPORT_SECONDS", 0.1)
    caplog.set_level(logging.WARNING)

    async def scenario(nodes) -> None:
        await nodes[2].close()
        searches = [asyncio.create_task(node.find(nodes)) for node in nodes[:2]]
        await asyncio.sleep(1)
        assert not any(search.done() for search in searches)
        assert f"waiting for the controllers 3@127.0.0.1:{nodes[2].port}" in caplog.text
        # It returns, and knows a cluster.
        greeting = Greeting()
        greeting.cluster_id = "existing"
        returned = Listener(greeting, "CONTROLLER")
        returned.listen("127.0.0.1", nodes[2].port)
        assert await asyncio.gather(*searches) == ["existing"] * 2
        await returned.close(grace_seconds=0)

    three(scenario)


def test_only_the_lowest_voter_founds(three):
    async def scenario(nodes) -> None:
        later = asyncio.create_task(nodes[1].find(nodes))
        await asyncio.sleep(0.5)
        assert not later.done()
        assert await nodes[0].find(nodes) == await later

    three(scenario)


def test_controllers_of_different_clusters_are_an_error(three):
    async def scenario(nodes) -> None:
        nodes[1].greeting.cluster_id, nodes[2].greeting.cluster_id = "one", "other"
        with pytest.raises(BadSettings, match="belong to different clusters"):
            await nodes[0].find(nodes)

    three(scenario)


def test_a_node_with_bootstrap_servers_never_founds(three, caplog, monkeypatch):
    monkeypatch.setattr(membership, "REPORT_SECONDS", 0.1)
    caplog.set_level(logging.WARNING)

    async def scenario(nodes) -> None:
        servers = tuple(("127.0.0.1", node.port) for node in nodes[1:])
        joining = replace(roles(1, nodes), voters={}, bootstrap_servers=servers)
        search = asyncio.create_task(ClusterIdSearch(joining, nodes[0].peers, SystemEntropy()).find())
        await asyncio.sleep(0.6)
        assert not search.done()
        assert "runnel storage format --standalone" in caplog.text
        nodes[2].greeting.cluster_id = "existing"
        assert await search == "existing"

    three(scenario)


def test_a_quorum_without_a_leader_is_reported(three, caplog, monkeypatch):
    monkeypatch.setattr(quorum_watch, "CHECK_SECONDS", 0.1)
    caplog.set_level(logging.WARNING)

    async def scenario(nodes) -> None:
        leaders: list[int] = []
        watch = QuorumWatch(roles(1, nodes), nodes[0].peers, "mine", lambda: bool(leaders))
        watching = asyncio.create_task(watch.run())
        while "no controller leads the quorum, although those" not in caplog.text:
            await asyncio.sleep(0.05)
        await nodes[2].close()
        address = f"3@127.0.0.1:{nodes[2].port}"
        while f"these do not answer: {address} (the connection was refused)." not in caplog.text:
            await asyncio.sleep(0.05)
        nodes[1].greeting.cluster_id = "other"
        while f"belongs to the cluster mine, but 2@127.0.0.1:{nodes[1].port} to other." not in caplog.text:
            await asyncio.sleep(0.05)
        leaders.append(2)
        await asyncio.sleep(0.3)
        caplog.clear()
        await asyncio.sleep(0.3)
        assert caplog.text == ""
        watching.cancel()

    three(scenario)


def test_other_requests_are_refused_by_a_controller_that_starts(three):
    async def scenario(nodes) -> None:
        channel = nodes[0].peers.channel("127.0.0.1", nodes[1].port, "test")
        for version in (None, 2):
            with pytest.raises(PeerFailed, match="closed the connection"):
                await channel.send(VoteRequest(), version=version)

    three(scenario)
