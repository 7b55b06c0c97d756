"""What a gateway counts, and that clients cannot make it count without end."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.http.clients import Client
from tests.observe.scraping import Samples, get, scrape, total, value

PUBLISH = "/topics/{topic}/publish"
SUBSCRIBE = "/topics/{topic}/subscribe"


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
        yield Client.of(visitor)


def read(client: Client) -> Samples:
    return scrape(f"{client.host}:{client.port}")


def requests(client: Client, method: str, route: str, status: str) -> float:
    return total(read(client), "runnel_http_requests_total", method=method, route=route, status=status)


def test_requests_by_route_and_status(client: Client) -> None:
    record = b'{"value": "%b"}' % (b"x" * 1000)
    for topic, status in (("orders", 200), ("missing", 404), ("orders", 200)):
        assert client.post(f"/topics/{topic}/publish", record).status == status
    assert client.get("/topics/orders/publish").status == 405
    assert client.get("/console/topics").status == 200
    assert client.get("/subjects").status == 200
    assert client.get("/livez", Host="evil.example").status == 421
    samples = read(client)
    assert {
        (labels["method"], labels["route"], labels["status"]): count
        for labels, count in (
            (dict(labels), count)
            for (name, labels), count in samples.items()
            if name == "runnel_http_requests_total"
        )
    } == {
        ("POST", PUBLISH, "2xx"): 2,
        ("POST", PUBLISH, "4xx"): 1,
        ("GET", PUBLISH, "4xx"): 1,
        ("GET", "/console", "2xx"): 1,
        ("GET", "registry", "2xx"): 1,
        ("GET", "other", "4xx"): 1,
    }
    labels = {"method": "POST", "route": PUBLISH}
    assert value(samples, "runnel_http_request_seconds_count", **labels) == 3
    assert 0 < value(samples, "runnel_http_request_seconds_sum", **labels) < 60
    # The body of a request for a topic that does not exist is not read.
    assert value(samples, "runnel_http_request_body_bytes_total", **labels) == 2 * len(record)
    assert value(samples, "runnel_http_response_body_bytes_total", **labels) > 100
    assert value(samples, "runnel_http_body_memory_bytes") == 0
    assert value(samples, "runnel_collector_failures_total") == 0


def test_clients_cannot_add_series(client: Client) -> None:
    def series() -> int:
        return len(read(client))

    client.get("/topics/a/subscribe")
    client.call("BREW", "/topics/a/subscribe")
    client.get("/unknown")
    series()
    before = series()
    for number in range(30):
        client.get(f"/topics/none-{number}/subscribe")
        client.call(f"BREW{number}", "/topics/a/subscribe")
        client.get(f"/unknown-{number}")
        client.get("/unknown", Host=f"evil-{number}.example")
    assert series() == before
    assert b"none-" not in get(f"{client.host}:{client.port}", "/metrics")[2]


def test_open_streams(client: Client) -> None:
    def eventually(**wanted: float) -> None:
        deadline = time.monotonic() + 20
        while True:
            samples = read(client)
            found = {
                kind: total(samples, "runnel_http_streams", route=SUBSCRIBE, kind=kind) for kind in wanted
            }
            if found == wanted:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    path = "/topics/orders/subscribe"
    with client.events(path), client.events(f"{path}?offset=0") as events:
        events.take(3)
        with connect(f"ws://{client.host}:{client.port}{path}"):
            eventually(sse=2, websocket=1)
        eventually(sse=2, websocket=0)
    eventually(sse=0, websocket=0)
    assert requests(client, "GET", SUBSCRIBE, "2xx") == 2
    assert requests(client, "GET", SUBSCRIBE, "1xx") == 1
    samples = read(client)
    # Streams are not slow requests.
    assert total(samples, "runnel_http_request_seconds_count", route=SUBSCRIBE) == 0
    assert total(samples, "runnel_http_response_body_bytes_total", route=SUBSCRIBE) > 300


def test_the_exposition_is_that_of_prometheus_and_documented(client: Client) -> None:
    with client.events("/topics/orders/subscribe"):
        client.get("/topics")
        # What is registered is known once the registry has read its topic.
        assert client.get("/subjects").status == 200
        status, headers, body = get(f"{client.host}:{client.port}", "/metrics")
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(body.decode()))
    assert all(family.documentation and family.type != "unknown" for family in families)
    exposed = dict(line.split()[2:] for line in body.decode().splitlines() if line.startswith("# TYPE "))
    page = (Path(__file__).parents[2] / "docs" / "OBSERVABILITY.md").read_text()
    section = page.partition("\n## Metrics of a gateway\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if re.match(r"\| `runnel_", line)]
    documented = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert exposed == documented
