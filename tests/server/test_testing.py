"""`runnel.testing.Broker` and the pytest fixtures."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import aiokafka
import pytest
from kafka import KafkaConsumer, KafkaProducer

from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import NoBrokerAvailable
from runnel.client.sync import SyncClient
from runnel.server.layers import BadSettings
from runnel.testing import Broker


def test_kafka_python_client(runnel):
    producer = KafkaProducer(bootstrap_servers=runnel.bootstrap_servers)
    producer.send("orders", b"tea").get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=runnel.bootstrap_servers, auto_offset_reset="earliest", group_id="g"
    )
    assert next(consumer).value == b"tea"
    consumer.close()


def test_async_context_manager():
    async def scenario() -> None:
        async with Broker() as broker:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            assert (await producer.send_and_wait("orders", b"tea")).offset == 0
            await producer.stop()

    asyncio.run(scenario())


def test_temporary_data_is_removed():
    threads = set(threading.enumerate())
    with Broker() as broker:
        folder, address = Path(str(broker.data_dir)), broker.bootstrap_servers
        assert folder.is_dir()
    assert not folder.exists()
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= threads
    with pytest.raises(NoBrokerAvailable):
        SyncClient(address)


def test_a_killed_broker_recovers_what_was_acknowledged():
    threads = set(threading.enumerate())
    with Broker() as broker:
        node = broker.nodes[0]
        for number in range(3):
            with broker.client() as client:
                client.send("orders", b"%d" % number)
                node.kill()
            assert not node.is_running
            assert not Path(str(broker.data_dir), "clean-shutdown-manifest").exists()
            node.start()
        with broker.client() as client:
            assert [message.value for message in client.read("orders")] == [b"0", b"1", b"2"]
        node.kill()
        broker.restart()
        node = broker.nodes[0]
        with pytest.raises(RuntimeError, match="already running"):
            node.start()
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= threads


def wait_until_in_sync(client: SyncClient, replicas: int = 3) -> None:
    """A replica that returned has to catch up: a partition that loses its only one in sync has no leader."""
    deadline = time.monotonic() + 60

    async def topics(cluster: Cluster) -> list[TopicView]:
        return await cluster.topics()

    while any(len(place.in_sync) < replicas for view in client.run(topics) for place in view.partitions):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_survives_the_loss_of_each_of_its_nodes(runnel_cluster):
    with runnel_cluster.client() as client:
        client.create_topic("orders", partitions=6)
        for number, node in enumerate(runnel_cluster.nodes):
            client.send("orders", b"before %d" % number)
            wait_until_in_sync(client)
            node.kill()
            client.send("orders", b"after %d" % number)
            node.start()
        assert {message.value for message in client.read("orders")} == {
            b"%s %d" % (word, number) for word in (b"before", b"after") for number in range(3)
        }
    assert [node.node_id for node in runnel_cluster.nodes] == [1, 2, 3]
    assert len(runnel_cluster.bootstrap_servers.split(",")) == 3


def test_a_cluster_is_restarted_with_its_data(tmp_path):
    with Broker(nodes=3, data_dir=tmp_path) as cluster:
        address = cluster.bootstrap_servers
        with cluster.client() as client:
            client.send("orders", b"tea")
        cluster.restart()
        assert cluster.bootstrap_servers == address
        with cluster.client() as client:
            assert [message.value for message in client.read("orders")] == [b"tea"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node-1", "node-2", "node-3"]
    with Broker(nodes=3, data_dir=tmp_path) as cluster, cluster.client() as client:
        assert [message.value for message in client.read("orders")] == [b"tea"]


def test_restart_keeps_port_and_data():
    with Broker() as broker:
        address = broker.bootstrap_servers
        with broker.client() as client:
            client.send("orders", b"tea")
        broker.restart()
        assert broker.bootstrap_servers == address
        with broker.client() as client:
            assert [message.value for message in client.read("orders")] == [b"tea"]


def test_given_data_dir_is_kept(tmp_path):
    for expected in ([], [b"tea"]):
        with Broker(data_dir=tmp_path / "data") as broker, broker.client() as client:
            client.create_topic("orders") if not expected else None
            assert [message.value for message in client.read("orders")] == expected
            client.send("orders", b"tea")


def test_settings():
    with (
        Broker({"num.partitions": 3, "auto.create.topics.enable": True}) as broker,
        broker.client() as client,
    ):
        client.send("orders", b"tea")
        assert len(client.run(lambda cluster: cluster.topic("orders")).partitions) == 3


@pytest.mark.runnel({"num.partitions": 5})
def test_settings_by_marker(runnel):
    with runnel.client() as client:
        client.send("orders", b"tea")
        assert len(client.run(lambda cluster: cluster.topic("orders")).partitions) == 5


def test_failed_start_raises_and_leaves_no_files():
    with Broker() as broker:
        second = Broker(port=broker.port)
        with pytest.raises(BadSettings, match="cannot bind"), second:
            pass
        assert second.data_dir is None
        with pytest.raises(RuntimeError, match="already running"):
            broker.start()


def test_two_brokers_are_independent():
    with Broker() as one, Broker() as two, one.client() as first, two.client() as second:
        first.send("orders", b"tea")
        assert (first.topics(), second.topics()) == (["orders"], [])


def test_fixtures_in_another_project(tmp_path):
    (tmp_path / "test_theirs.py").write_text(
        """
import pytest

def test_fresh(runnel):
    with runnel.client() as client:
        client.send("mine", b"x")
        assert client.topics() == ["mine"]

def test_fresh_again(runnel):
    with runnel.client() as client:
        assert client.topics() == []

@pytest.mark.runnel({"num.partitions": 2})
def test_marked(runnel):
    with runnel.client() as client:
        client.send("mine", b"x")
        assert len(client.run(lambda cluster: cluster.topic("mine")).partitions) == 2

def test_shared(runnel_session):
    with runnel_session.client() as client:
        client.send("ours", b"x")

def test_shared_still(runnel_session):
    with runnel_session.client() as client:
        assert client.topics() == ["ours"]
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:randomly", "-W", "error"]
    ended = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
