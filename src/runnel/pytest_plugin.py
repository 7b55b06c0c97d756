"""Fixtures for tests of Kafka clients: a real broker per test or per session, or a cluster of three.

    def test_orders(runnel):
        producer = KafkaProducer(bootstrap_servers=runnel.bootstrap_servers)

Broker settings: `@pytest.mark.runnel({"num.partitions": 3})`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from runnel.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "runnel(settings): broker settings, by their Kafka names, for the fixtures of a test"
    )


@pytest.fixture
def runnel(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """An empty broker for one test."""
    # Imported here: test runs that do not use the fixture must not pay for it.
    from runnel.testing import Broker

    marker = request.node.get_closest_marker("runnel")
    with Broker(*marker.args, **marker.kwargs) if marker else Broker() as broker:
        yield broker


@pytest.fixture
def runnel_cluster(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """An empty cluster of three nodes for one test; `runnel_cluster.nodes[0].kill()` kills one."""
    from runnel.testing import Broker

    marker = request.node.get_closest_marker("runnel")
    options = {"nodes": 3, **(marker.kwargs if marker else {})}
    with Broker(*(marker.args if marker else ()), **options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def runnel_session() -> "Iterator[Broker]":
    """One broker for the session; tests share its topics and groups."""
    from runnel.testing import Broker

    with Broker() as broker:
        yield broker
