"""A broker with records, and a gateway for it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from runnel.client.groups import Groups
from runnel.gateway.options import GatewayOptions
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.browsers import chromium, tab_of
from tests.gateway.gateways import Visitor, serving

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="package", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A working directory without the reports of a demo, which the console would show."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with running.client() as client:
            client.create_topic("orders", partitions=2, settings={"retention.ms": "-1"})
            for number in range(120):
                client.send(
                    "orders",
                    b'{"id": %d, "country": "%s"}' % (number, b"DE" if number % 2 else b"FR"),
                    key=b"key-%d" % number,
                    headers=[("trace", b"%d" % number)],
                    partition=number % 2,
                    timestamp_ms=1_790_000_000_000 + number * 1000,
                )
            client.send("orders", HOSTILE.encode(), key=HOSTILE.encode(), partition=0)
            client.send("orders", b"\xff\x00\xfe", key=b"\xff", partition=1)
            positions = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}
            client.run(lambda cluster: Groups(cluster).commit("billing", positions))
            client.run(lambda cluster: Groups(cluster).commit(HOSTILE, positions))
        yield running


@pytest.fixture(scope="module")
def visitor(broker: Broker) -> Iterator[Visitor]:
    with serving(GatewayOptions(broker.bootstrap_servers)) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(console: Any, browser: Any) -> Iterator[Any]:
    """A tab of the console of this module, in which nothing may go wrong."""
    with tab_of(browser, console.gateway_url) as tab:
        yield tab
    assert tab.faults == []
