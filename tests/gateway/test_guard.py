"""What is refused before it reaches a page."""

import pytest

from runnel.gateway.console.login import safe_target
from runnel.gateway.guard import POLICY, refusal_of
from runnel.gateway.options import GatewayOptions
from runnel.observe.http import is_known_host
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving

HOSTS = frozenset(("localhost", "console.example"))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "10.1.2.3", "[::1]:8080", "console.example:80"],
)
def test_hosts_that_are_known(host: str) -> None:
    assert is_known_host(host, HOSTS)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "[::1", "1.2.3"]
)
def test_hosts_that_are_not(host: str) -> None:
    assert is_known_host(host, HOSTS) is (host == "[::1")


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "localhost", "origin": "http://evil.example"}, None),
        ("POST", {"host": "localhost:1", "origin": "http://localhost:1"}, None),
        ("POST", {"host": "localhost:1", "origin": "http://localhost:2"}, 403),
        ("POST", {"host": "localhost:1", "origin": "https://localhost:1"}, 403),
        ("POST", {"host": "localhost:1", "origin": "null"}, 403),
        ("POST", {"host": "localhost:1", "sec-fetch-site": "cross-site"}, 403),
        ("DELETE", {"host": "localhost:1", "sec-fetch-site": "same-site"}, 403),
        ("POST", {"host": "evil.example", "origin": "http://evil.example"}, 421),
        ("GET", {"host": "evil.example"}, 421),
    ],
)
def test_requests_of_foreign_pages_are_refused(
    method: str, headers: dict[str, str], status: int | None
) -> None:
    refusal = refusal_of(method, "http", headers, HOSTS)
    assert (None if refusal is None else refusal[0]) == status


@pytest.mark.parametrize(
    ("target", "safe"),
    [
        ("/console/topics?q=1", "/console/topics?q=1"),
        ("//evil.example/console/", "/console/"),
        ("/console//evil.example", "/console/"),
        ("https://evil.example/", "/console/"),
        ("/console/\r\nSet-Cookie: a=b", "/console/"),
        ("/console/\\evil", "/console/"),
    ],
)
def test_a_login_leads_to_pages_of_the_console_only(target: str, safe: str) -> None:
    assert safe_target(target) == safe


def test_every_response_has_the_headers_that_protect_a_page(visitor: Visitor) -> None:
    for path in ("/console/", "/console/topics/none", "/console/static/console.css", "/console/nowhere"):
        headers = visitor.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert "unsafe" not in POLICY


def test_a_foreign_page_changes_nothing(visitor: Visitor) -> None:
    form = {"name": "stolen"}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": None, "Sec-Fetch-Site": "cross-site"},
        {"Origin": None},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ):
        assert visitor.request("POST", "/console/new-topic", form, headers).status in (403, 421)
    reply = visitor.request("POST", "/console/new-topic", form, {"Content-Type": "text/plain"})
    assert reply.status == 415
    assert "stolen" not in visitor.content("/console/topics").text


def test_read_only_removes_the_routes(broker: Broker) -> None:
    with serving(GatewayOptions(broker.bootstrap_servers, read_only=True)) as visitor:
        page = visitor.get("/console/topics/orders").text
        assert "Produce" not in page and "Delete topic" not in page
        for path in (
            "/console/new-topic",
            "/console/topics/orders/delete",
            "/console/topics/orders/produce",
            "/console/group/reset?id=billing",
            "/console/settings/1/setting",
        ):
            assert visitor.get(path).status == 404
            assert visitor.post(path, name="x", confirm="orders").status == 404
        assert "orders" in visitor.content("/console/topics").text


def test_a_body_is_bounded(visitor: Visitor) -> None:
    assert visitor.post("/console/new-topic", name="x" * 5_000_000).status == 413
