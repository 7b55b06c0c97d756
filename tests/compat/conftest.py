"""Third-party clients against one broker.

RUNNEL_COMPAT_BOOTSTRAP=host:port points the suite at any other broker, for example Apache Kafka: a test that
fails there is wrong about the protocol.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import BrokerProcess

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "4",
    # Short intervals, for fast tests.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

Named = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test."""
    elsewhere = os.environ.get("RUNNEL_COMPAT_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    folder: Path = tmp_path_factory.mktemp("compat") / "data"
    with BrokerProcess(folder, SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient) -> Named:
    """Create a topic with a unique name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([new])[name].result(20)
        return name

    return make


@pytest.fixture
def topic(make_topic: Named) -> str:
    return make_topic()


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:12]}"
