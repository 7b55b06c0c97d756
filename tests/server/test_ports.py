"""Ports that are reserved for nodes."""

import socket

import pytest

from runnel.server import ports


def listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_a_node_listens_on_its_port_as_often_as_it_is_started() -> None:
    (port,) = ports.free_ports("127.0.0.1", 1)
    for _ in range(2):
        with listen(port), socket.create_connection(("127.0.0.1", port)):
            pass


def test_nothing_listens_on_a_port_before() -> None:
    (port,) = ports.free_ports("127.0.0.1", 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_no_other_socket_gets_a_reserved_port() -> None:
    reserved = ports.free_ports("127.0.0.1", 20)
    assert len(set(reserved)) == 20
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", reserved[0]))


def test_reservations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "RESERVED_MAX", 5)
    monkeypatch.setattr(ports, "_reserved", type(ports._reserved)())
    ports.free_ports("127.0.0.1", 12)
    assert len(ports._reserved) == 5
    for reserved in ports._reserved:
        reserved.close()
