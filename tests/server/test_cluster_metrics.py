"""Metrics and health of a cluster whose nodes fail: replication, ISRs, elections, the controller."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster_admin import ClusterAdmin
from runnel.model.ids import TopicPartition
from runnel.server import admin
from runnel.testing import Broker, BrokerNode
from tests.observe.scraping import Samples, get, scrape, total, value

REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
TOPICS = "kafka_server_brokertopicmetrics_"
FAST = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "100"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "MAX_AGE_SECONDS", 0.0)


@pytest.fixture
def cluster() -> Iterator[Broker]:
    with Broker(FAST, nodes=3, admin=True) as running:
        yield running


def running(cluster: Broker) -> list[BrokerNode]:
    return [node for node in cluster.nodes if node.is_running]


def everywhere(cluster: Broker) -> list[Samples]:
    return [scrape(node.admin_address) for node in running(cluster)]


def summed(cluster: Broker, name: str, **labels: str) -> float:
    return sum(total(samples, name, **labels) for samples in everywhere(cluster))


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def controller(cluster: Broker) -> BrokerNode:
    (found,) = [
        node
        for node in running(cluster)
        if value(scrape(node.admin_address), f"{CONTROLLER}activecontrollercount")
    ]
    return found


def create(cluster: Broker, name: str, **options: Any) -> None:
    with cluster.client() as client:
        client.run(lambda connected: Admin(connected).create_topic(name, **options))


def test_a_node_fails_and_returns(cluster: Broker) -> None:
    create(cluster, "orders", partitions=6)
    with cluster.client() as client:
        client.send_all("orders", [(b"%d" % number, b"x" * 100) for number in range(600)])
    wait_for(lambda: is_replicated(cluster), "all replicas have all records")
    check_all_in_sync(cluster)

    failed = controller(cluster)
    failed.kill()
    wait_for(lambda: summed(cluster, f"{REPLICAS}underreplicatedpartitions") == 6, "a replica is missing")
    check_without_one(cluster)

    failed.start()
    wait_for(lambda: summed(cluster, f"{REPLICAS}underreplicatedpartitions") == 0, "it is in sync again")
    assert summed(cluster, "runnel_isr_changes_total", kind="expand") >= 6
    assert summed(cluster, f"{REPLICAS}isrexpands_total") >= 6
    wait_for(
        lambda: all(get(node.admin_address, "/readyz?replicas")[0] == 200 for node in cluster.nodes),
        "every node may be stopped again",
    )


def is_replicated(cluster: Broker) -> bool:
    copied = summed(cluster, f"{TOPICS}replicationbytesin_total")
    behind = summed(cluster, "runnel_replica_lag_records")
    return copied > 0 and behind == summed(cluster, f"{REPLICAS}underreplicatedpartitions") == 0


def check_all_in_sync(cluster: Broker) -> None:
    samples = everywhere(cluster)
    assert sum(value(each, f"{REPLICAS}leadercount") for each in samples) == 6
    assert all(value(each, f"{REPLICAS}partitioncount") == 6 for each in samples)
    assert sum(value(each, f"{CONTROLLER}activecontrollercount") for each in samples) == 1
    assert sum(total(each, "kafka_brokers") for each in samples) == 3
    assert sum(total(each, "kafka_topic_partition_current_offset", topic="orders") for each in samples) == 600
    assert sum(total(each, f"{TOPICS}messagesin_total", topic="orders") for each in samples) == 600
    bytes_in = sum(total(each, f"{TOPICS}bytesin_total", topic="orders") for each in samples)
    assert sum(value(each, f"{TOPICS}replicationbytesin_total") for each in samples) == 2 * bytes_in
    assert sum(value(each, f"{TOPICS}replicationbytesout_total") for each in samples) >= 2 * bytes_in
    followers = [labels for each in samples for name, labels in each if name == "runnel_replica_lag_seconds"]
    assert len(followers) == 2 * 6
    for node in cluster.nodes:
        assert get(node.admin_address, "/readyz")[0] == 200
        assert get(node.admin_address, "/readyz?replicas")[0] == 200


def check_without_one(cluster: Broker) -> None:
    samples = everywhere(cluster)
    assert sum(total(each, "kafka_topic_partition_under_replicated_partition") for each in samples) == 6
    assert sum(value(each, f"{REPLICAS}atminisrpartitioncount") for each in samples) == 6
    assert sum(value(each, f"{REPLICAS}underminisrpartitioncount") for each in samples) == 0
    assert sum(value(each, f"{CONTROLLER}activecontrollercount") for each in samples) == 1
    assert sum(total(each, "kafka_brokers") for each in samples) == 2
    assert sum(total(each, f"{CONTROLLER}fencedbrokercount") for each in samples) == 1
    assert sum(value(each, "runnel_isr_changes_total", kind="shrink") for each in samples) >= 1
    assert sum(value(each, "runnel_election_seconds_count", kind="controller") for each in samples) >= 1
    assert sum(value(each, "runnel_election_seconds_count", kind="partition") for each in samples) == 1
    elected = "kafka_controller_controllerstats_leaderelections_total"
    assert sum(value(each, elected) for each in samples) == 2, "those that the failed node led"
    unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
    assert sum(value(each, unclean) for each in samples) == 0
    for node in running(cluster):
        assert get(node.admin_address, "/readyz")[0] == 200
        status, _, body = get(node.admin_address, "/readyz?replicas")
        assert status == 503
        assert b"orders-0 has 2 in-sync replicas" in body


def test_an_unclean_election(cluster: Broker) -> None:
    name = "risky"
    create(cluster, name, partitions=1, replication_factor=2, settings={"min.insync.replicas": "1"})
    with cluster.client() as client:
        client.send(name, b"on both")
        (topic,) = [each for each in client.run(lambda c: Admin(c).topics()) if each.name == name]
    leader, follower = (cluster.nodes[node - 1] for node in topic.partitions[0].replicas)
    follower.kill()
    with cluster.client() as client:
        wait_for(lambda: summed(cluster, "kafka_topic_partition_in_sync_replica", topic=name) == 1, "it left")
        client.send(name, b"on the leader only")
    leader.kill()
    follower.start()
    offline = f"{CONTROLLER}offlinepartitionscount"
    wait_for(lambda: summed(cluster, offline) == 1, "the partition has no leader")
    samples = scrape(controller(cluster).admin_address)
    assert value(samples, "kafka_topic_partition_leader", topic=name, partition="0") == -1
    unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
    assert summed(cluster, unclean) == 0
    with cluster.client() as client:
        client.run(lambda connected: ClusterAdmin(connected).elect_unclean(TopicPartition(name, 0)))
    assert summed(cluster, unclean) == 1
    wait_for(lambda: summed(cluster, offline) == 0, "it has a leader again")
