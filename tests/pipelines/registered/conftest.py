from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.pipelines.registered.topics import Topic


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: Broker) -> Iterator[str]:
    with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        yield visitor.origin


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def topic(broker: Broker, url: str, registry: SchemaRegistryClient) -> Topic:
    return Topic(broker, url, registry)
