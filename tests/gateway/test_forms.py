"""Forms of the console: all who can reach the login may send them, of any size and slowly."""

import socket
import time
from collections.abc import Iterator

import pytest

from runnel.gateway.options import GatewayOptions
from tests.gateway.gateways import Visitor, serving
from tests.observe.scraping import scrape, value

FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
SECURED = GatewayOptions("127.0.0.1:1", {"security.protocol": "SASL_PLAINTEXT"})
"""No broker is asked before there is a form."""


@pytest.fixture
def door() -> Iterator[Visitor]:
    with serving(SECURED) as visitor:
        yield visitor


def begun(door: Visitor, sent: bytes, length: int) -> socket.socket:
    """A connection with the beginning of a form for the login."""
    line = socket.create_connection((door.host, door.port), timeout=30)
    head = f"POST /console/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
    line.sendall(head.encode() + FORM + b"\r\n" + sent)
    return line


def test_a_login_has_a_size(door: Visitor) -> None:
    form = {"username": "anna", "password": "x" * 70_000, "mechanism": "PLAIN"}
    assert door.request("POST", "/console/login", form).status == 413


def test_the_fields_of_a_form_are_counted_before_they_are_parsed(door: Visitor) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    refused = door.request("POST", "/console/login", headers=kind, body="=&" * 30_000 + "=")
    assert refused.status == 400 and "malformed" in refused.text


def test_a_form_that_pauses_is_a_408(door: Visitor, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_READ_S", 0.2)
    with begun(door, b"username=", 100) as line:
        assert line.recv(12) == b"HTTP/1.1 408"


def test_forms_of_strangers_have_a_share_of_the_memory(monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.api.BODIES_BYTES_MAX", 100_000)
    with serving(SECURED) as door, begun(door, b"username=" + b"x" * 40_000, 60_000):
        deadline = time.monotonic() + 20
        while value(scrape(f"{door.host}:{door.port}"), "runnel_http_body_memory_bytes") < 40_000:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        form = {"username": "anna", "password": "x" * 20_000, "mechanism": "PLAIN"}
        refused = door.request("POST", "/console/login", form)
        assert refused.status == 429 and "50000 bytes" in refused.text


def test_logins_that_wait_have_a_limit(door: Visitor, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.sessions.LOGINS_WAITING_MAX", 0)
    form = {"username": "anna", "password": "x", "mechanism": "PLAIN"}
    refused = door.request("POST", "/console/login", form)
    assert refused.status == 503 and "too many" in refused.text
