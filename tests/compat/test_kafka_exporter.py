"""kafka_exporter: our metrics have its names, labels and values, and it runs against a broker as it is."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.client.groups import Groups
from runnel.model.ids import TopicPartition
from runnel.server.ports import free_ports
from runnel.testing import Broker
from tests.observe.scraping import Samples, get, scrape
from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

MODULE = "github.com/danielqsj/kafka_exporter@latest"
PROGRAM = "RUNNEL_KAFKA_EXPORTER"
"""The environment variable with a program that is already there."""
BUILD_TIMEOUT_S = 900

PARTITION, GROUP = {"topic", "partition"}, {"consumergroup", "topic"}
SERIES = {
    "kafka_brokers": set(),
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": PARTITION,
    "kafka_topic_partition_oldest_offset": PARTITION,
    "kafka_topic_partition_leader": PARTITION,
    "kafka_topic_partition_replicas": PARTITION,
    "kafka_topic_partition_in_sync_replica": PARTITION,
    "kafka_topic_partition_leader_is_preferred": PARTITION,
    "kafka_topic_partition_under_replicated_partition": PARTITION,
    "kafka_consumergroup_current_offset": GROUP | {"partition"},
    "kafka_consumergroup_current_offset_sum": GROUP,
    "kafka_consumergroup_lag": GROUP | {"partition"},
    "kafka_consumergroup_lag_sum": GROUP,
    "kafka_consumergroup_members": {"consumergroup"},
}
"""What it shows of a cluster without ZooKeeper, with labels; but for kafka_broker_info."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(admin=True) as broker:
        with broker.client() as client:
            client.create_topic("orders", partitions=2)
            for number in range(10):
                client.send("orders", b"x", partition=number % 2)
            committed = {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 5}
            client.run(lambda cluster: Groups(cluster).commit("billing", committed))
        yield broker


def own(samples: Samples) -> Samples:
    """Without internal topics: what is committed there changes."""
    return {
        (name, labels): value
        for (name, labels), value in samples.items()
        if name in SERIES and not dict(labels).get("topic", "").startswith("__")
    }


def settled(address: str | None) -> Samples:
    """With the lag, which is sampled every second."""
    deadline = time.monotonic() + 30
    while "kafka_consumergroup_lag" not in {name for name, _ in own(scrape(address))}:
        assert time.monotonic() < deadline, "the lag is not known"
        time.sleep(0.1)
    return own(scrape(address))


def test_our_metrics_have_its_names_labels_and_values(broker: Broker) -> None:
    found = settled(broker.admin_address)
    assert {name: {label for label, _ in labels} for name, labels in found} == SERIES
    values = {
        (name, *(value for _, value in sorted(labels) if value not in ("orders", "billing"))): sample
        for (name, labels), sample in found.items()
    }
    assert values["kafka_topic_partition_current_offset", "0"] == 5
    assert values["kafka_consumergroup_lag", "0"] == 4 and values["kafka_consumergroup_lag", "1"] == 0
    assert values["kafka_consumergroup_lag_sum",] == 4
    assert values["kafka_consumergroup_current_offset_sum",] == 6


def exporter() -> Path:
    """The program: one that is given, or built by Go."""
    if given := os.environ.get(PROGRAM):
        return Path(given)

    def build(folder: Path) -> None:
        go = find("go", "run kafka_exporter")
        done = subprocess.run(
            [go, "install", MODULE],
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"Go could not build {MODULE}: {done.stderr.strip().splitlines()[-1]}")

    return cached("kafka_exporter", build) / "kafka_exporter"


@contextmanager
def exporting(bootstrap: str) -> Iterator[str]:
    """kafka_exporter, and the address of its metrics."""
    (port,) = free_ports("127.0.0.1", 1)
    address = f"127.0.0.1:{port}"
    command = [str(exporter()), f"--kafka.server={bootstrap}", f"--web.listen-address={address}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    if get(address, "/metrics")[0] == 200:
                        break
                except OSError:
                    time.sleep(0.2)
            assert process.poll() is None, "it does not run"
            yield address
        finally:
            process.terminate()


@pytest.mark.long
def test_it_shows_what_we_show(broker: Broker) -> None:
    try:
        exporter()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with exporting(broker.bootstrap_servers) as address:
        theirs = own(scrape(address))
    assert theirs == settled(broker.admin_address)
