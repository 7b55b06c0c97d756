"""Listener addresses: parsing, invalid ones, duplicates."""

import pytest

from runnel.server.addresses import Address, check_distinct, parse_address
from runnel.server.layers import BadSettings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Address("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", Address("PLAINTEXT", "", 0)),
        ("PLAINTEXT://[::1]:9092", Address("PLAINTEXT", "::1", 9092)),
    ],
)
def test_parse_kafka_listener_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "PLAINTEXT://host", "PLAINTEXT://host:70000", "A://h:x"])
def test_invalid_addresses_are_rejected_with_an_example(text: str) -> None:
    with pytest.raises(BadSettings, match=r"PLAINTEXT://127\.0\.0\.1:9092"):
        parse_address(text)


@pytest.mark.parametrize(
    ("listeners", "complaint"),
    [
        (["A://h:1", "a://h:2"], "two listeners named A"),
        (["A://:1", "B://:1"], "the port 1 twice"),
        (["A://h:1", "B://127.0.0.1:1"], "the port 1 twice"),
        (["A://127.0.0.1:1", "B://127.0.0.2:1"], "the port 1 twice"),
        (["A://127.0.0.1:1", "B://[::1]:1", "C://:1"], "the port 1 twice"),
    ],
)
def test_listeners_have_different_names_and_ports(listeners: list[str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        check_distinct([parse_address(text) for text in listeners])


@pytest.mark.parametrize("listeners", [["A://:0", "B://:0"], ["A://127.0.0.1:1", "B://[::1]:1"]])
def test_listeners_may_share_a_port_of_different_families(listeners: list[str]) -> None:
    check_distinct([parse_address(text) for text in listeners])
