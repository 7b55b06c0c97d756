"""A broker for all client tests, and unique names."""

from collections.abc import Iterator
from itertools import count

import pytest

from runnel.testing import Broker

_numbers = count()


@pytest.fixture(scope="session")
def broker(runnel_session: Broker) -> Broker:
    return runnel_session


@pytest.fixture
def address(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> Iterator[str]:
    """A unique topic or group name."""
    yield f"test-{next(_numbers)}"
