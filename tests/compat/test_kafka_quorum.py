"""Runnel as a member of a metadata quorum with controllers of Apache Kafka."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel.messages.add_raft_voter import AddRaftVoterRequest, Listener
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest
from runnel.model.errors import ErrorCode
from runnel.model.ids import id_from_text, id_text
from runnel.schemas.metadata import NoOpRecord, encode_metadata_record
from runnel.testing import Broker
from runnel.wire import Request
from tests.broker.quorum_world import LISTENER, Member, in_loop, until
from tools.broker_process import free_port
from tools.kafka.commands import tool
from tools.kafka.controller import KafkaController

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER_ID = "YSBxdW9ydW0gb2YgYm90aA"
RETRIED = (
    ErrorCode.REQUEST_TIMED_OUT.code,
    ErrorCode.NOT_CONTROLLER.code,
    # A leader whose other voter is starved on a busy machine resigns, and one of them is elected again.
    ErrorCode.NOT_LEADER_OR_FOLLOWER.code,
)
ADDED = (ErrorCode.NONE.code, ErrorCode.DUPLICATE_VOTER.code)
REMOVED = (ErrorCode.NONE.code, ErrorCode.VOTER_NOT_FOUND.code)
"""The second is the response if an attempt whose outcome was unknown had an effect."""
OURS = 3
REPLICATION = ("describe", "--replication")

Mixed = Callable[[bool], "MixedQuorum"]


class MixedQuorum:
    """Kafka's controllers 1 and 2, and this process as node 3."""

    def __init__(self, folder: Path, is_dynamic: bool) -> None:
        self.ports = {node_id: free_port() for node_id in (1, 2, OURS)}
        servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in self.ports.items())
        key, value = ("bootstrap.servers", servers) if is_dynamic else ("voters", voters)
        self.settings = {f"controller.quorum.{key}": value}
        first = {1: ("--standalone",), 2: ("--no-initial-controllers",)} if is_dynamic else {}
        self.kafka = {
            node_id: KafkaController(
                folder / str(node_id),
                node_id,
                self.ports[node_id],
                CLUSTER_ID,
                self.settings,
                first.get(node_id, ()),
            )
            for node_id in (1, 2)
        }
        self._folder = folder

    async def join(self) -> Member:
        """Start this process as a controller."""
        roles = {"process.roles": "controller", "controller.listener.names": LISTENER}
        settings = {"node.id": str(OURS), **roles, **self.settings}
        member = Member(self._folder / str(OURS), OURS, self.ports[OURS], settings)
        member.broker.cluster_id = CLUSTER_ID
        await member.start()
        return member

    async def ask(self, member: Member, request: Request) -> Any:
        """The leader's response, once it is ready for the request."""
        async with asyncio.timeout(60):
            while True:
                channel = member.peers.channel("127.0.0.1", self.ports[max(member.quorum.leader_id, 1)], "t")
                response = await channel.send(request, timeout_ms=20_000)
                channel.close()
                if response.error_code not in RETRIED:
                    return response
                await asyncio.sleep(0.2)

    def add_request(self, node_id: int, directory_id: bytes) -> AddRaftVoterRequest:
        listener = Listener(LISTENER, "127.0.0.1", self.ports[node_id])
        return AddRaftVoterRequest(CLUSTER_ID, 10_000, node_id, directory_id, [listener])

    def check_logs(self) -> None:
        """Nothing of this process made Kafka complain.

        Kafka's controllers register with each other; one that has just resigned logs that as an error, and
        so does one that is slow on a busy machine.
        """
        expected = ("apiKey=CONTROLLER_REGISTRATION", "EventPerformanceMonitor")
        for controller in self.kafka.values():
            lines = controller.output.splitlines() if (controller.folder / "kafka.out").exists() else []
            errors = [line for line in lines if " ERROR " in line or " FATAL " in line]
            assert [line for line in errors if not any(text in line for text in expected)] == []


@pytest.fixture
def mixed(kafka_jars: Path, tmp_path: Path) -> Iterator[Mixed]:
    quorums: list[MixedQuorum] = []

    def make(is_dynamic: bool) -> MixedQuorum:
        quorums.append(MixedQuorum(tmp_path, is_dynamic))
        return quorums[-1]

    yield make
    for quorum in quorums:
        for controller in quorum.kafka.values():
            controller.kill()


@in_loop
async def test_a_configured_quorum_survives_its_leaders(mixed: Mixed) -> None:
    quorum = mixed(False)
    quorum.kafka[1].start()
    member = await quorum.join()
    await until(lambda: member.quorum.leader_id >= 0, 60)
    await asyncio.to_thread(quorum.kafka[2].start)
    for _ in range(2):
        leader = member.quorum.leader_id
        if leader == OURS:
            member.quorum.resign()
        elif leader in quorum.kafka:
            quorum.kafka[leader].kill()
        await until(partial(has_other_leader, member, leader), 60)
        committed = member.quorum.high_watermark
        if leader in quorum.kafka:
            await asyncio.to_thread(quorum.kafka[leader].start)
        # Kafka's active controller appends such a record every half a second.
        if member.quorum.is_leader:
            member.append(encode_metadata_record(NoOpRecord()))
        await until(partial(has_advanced, member, committed), 60)
    await member.kill()
    quorum.check_logs()


@in_loop
async def test_a_dynamic_quorum_is_taken_over_and_given_back(mixed: Mixed) -> None:
    quorum = mixed(True)
    quorum.kafka[1].start()
    member = await quorum.join()
    await until(lambda: member.quorum.high_watermark > 5, 60)
    add = quorum.add_request(OURS, member.key.directory_id)
    assert (await quorum.ask(member, add)).error_code in ADDED
    await until(lambda: member.quorum.voters.ids == [1, OURS], 60)
    described = await asyncio.to_thread(describe, quorum.ports[1])
    assert f"{OURS}\t{id_text(member.key.directory_id)}" in described.replace(" ", "")
    # The only other voter is removed, by its own leadership: this process leads alone.
    kafkas = id_from_text(quorum.kafka[1].directory_id)
    leaving = RemoveRaftVoterRequest(CLUSTER_ID, 1, kafkas)
    assert (await quorum.ask(member, leaving)).error_code in REMOVED
    await until(lambda: member.quorum.is_leader, 60)
    assert member.quorum.voters.ids == [OURS]
    # And back: Kafka's controller returns as a voter, and this one is removed while it leads.
    assert (await quorum.ask(member, quorum.add_request(1, kafkas))).error_code in ADDED
    await until(lambda: member.quorum.voters.ids == [1, OURS], 60)
    leaving = RemoveRaftVoterRequest(CLUSTER_ID, OURS, member.key.directory_id)
    assert (await quorum.ask(member, leaving)).error_code in REMOVED
    await until(lambda: member.quorum.leader_id == 1, 60)
    committed = member.quorum.high_watermark
    await until(lambda: member.quorum.high_watermark > committed, 60)
    assert member.quorum.voters.ids == [1]
    await member.kill()
    quorum.check_logs()


def test_kafkas_tools_change_the_voters_of_a_runnel_quorum(kafka_jars: Path) -> None:
    with Broker(nodes=3) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        upgraded = run("kafka-features", *server, "upgrade", "--feature", "kraft.version=1")
        assert "kraft.version was upgraded to 1" in upgraded
        # The controller appends a record now and then: a voter may be just behind.
        rows = replicas(server, lambda rows: all(row[3] == "0" for row in rows))
        assert {row[0] for row in rows} == {"1", "2", "3"}
        # The leader leaves: another voter succeeds it, and it observes.
        leader, directory_id = next((row[0], row[1]) for row in rows if row[-1] == "Leader")
        options = ("--controller-id", leader, "--controller-directory-id", directory_id)
        run("kafka-metadata-quorum", *server, "remove-controller", *options)
        replicas(server, lambda rows: {row[0] for row in rows if row[-1] == "Observer"} == {leader})


def replicas(server: tuple[str, str], is_expected: Callable[[list[list[str]]], bool]) -> list[list[str]]:
    """The rows of Kafka's tool, once they are as expected: id, directory id, end offset, lag, …, status."""
    for _ in range(10):
        lines = run("kafka-metadata-quorum", *server, *REPLICATION).splitlines()
        header = next(number for number, line in enumerate(lines) if line.startswith("NodeId"))
        rows = [line.split() for line in lines[header + 1 :]]
        if is_expected(rows) and sorted(row[-1] for row in rows if row[-1] != "Observer")[-1] == "Leader":
            return rows
    pytest.fail(f"the quorum is {rows}")


def run(script: str, *arguments: str) -> str:
    """The output of a tool."""
    command = tool(script, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def has_other_leader(member: Member, leader_id: int) -> bool:
    return member.quorum.leader_id not in (leader_id, -1)


def has_advanced(member: Member, offset: int) -> bool:
    return member.quorum.high_watermark > offset


def describe(port: int) -> str:
    """What Kafka's tool shows of the replicas."""
    return run("kafka-metadata-quorum", "--bootstrap-controller", f"127.0.0.1:{port}", *REPLICATION)
