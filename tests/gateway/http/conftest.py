"""A broker and a gateway for all tests of the HTTP API; each test has topics of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.http.clients import Client


@pytest.fixture(scope="package")
def http_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="package")
def client(http_broker: Broker) -> Iterator[Client]:
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        yield Client.of(visitor)


@pytest.fixture
def topic(client: Client) -> str:
    name = f"t-{uuid4().hex[:10]}"
    client.create(name)
    return name


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:10]}"
