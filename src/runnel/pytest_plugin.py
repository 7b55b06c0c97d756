"""Fixtures for whoever tests against Kafka's protocol: a real broker, fresh per test or one per session.

    def test_orders(runnel):
        producer = KafkaProducer(bootstrap_servers=runnel.bootstrap_servers)

Settings of the broker: `@pytest.mark.runnel({"num.partitions": 3})`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from runnel.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "runnel(settings): settings, by Kafka's names, for the broker of the fixture `runnel`"
    )


@pytest.fixture
def runnel(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A broker of this test alone, with nothing in it."""
    # Imported here, so that test runs which do not use the fixture do not pay for it.
    from runnel.testing import Broker

    marker = request.node.get_closest_marker("runnel")
    with Broker(*marker.args, **marker.kwargs) if marker else Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def runnel_session() -> "Iterator[Broker]":
    """One broker for the whole session: quicker still, but tests see each other's topics and groups."""
    from runnel.testing import Broker

    with Broker() as broker:
        yield broker
