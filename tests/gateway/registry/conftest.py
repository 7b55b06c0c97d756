from collections.abc import Iterator

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def registry(plain_broker: Broker) -> Iterator[Visitor]:
    with serving(GatewayOptions(plain_broker.bootstrap_servers)) as found:
        yield found
