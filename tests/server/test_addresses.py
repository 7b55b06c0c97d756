"""Listener addresses: parsing, advertised addresses, invalid ones."""

import pytest

from runnel.server.addresses import Address, advertised_address, listen_address, parse_address
from runnel.server.layers import BadSettings

PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,INTERNAL:PLAINTEXT"


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


def test_exactly_one_plaintext_listener_of_any_name_is_supported() -> None:
    assert listen_address(["INTERNAL://h:1"], PROTOCOLS) == Address("INTERNAL", "h", 1)
    with pytest.raises(BadSettings, match="uses SSL"):
        listen_address(["SSL://h:1"], PROTOCOLS)
    with pytest.raises(BadSettings, match="not 2"):
        listen_address(["PLAINTEXT://h:1", "INTERNAL://h:2"], PROTOCOLS)


def test_wildcard_host_is_advertised_as_machine_name() -> None:
    assert advertised_address([], Address("PLAINTEXT", "0.0.0.0", 1), "box") == Address("PLAINTEXT", "box", 1)
    assert advertised_address([], Address("PLAINTEXT", "::1", 1), "box") == Address("PLAINTEXT", "::1", 1)


def test_advertised_port_zero_becomes_the_bound_port() -> None:
    listening = Address("PLAINTEXT", "", 4711)
    assert advertised_address(["PLAINTEXT://outside:0"], listening, "box").port == 4711
    assert advertised_address(["PLAINTEXT://outside:80"], listening, "box").port == 80
    with pytest.raises(BadSettings, match="PLAINTEXT"):
        advertised_address(["OTHER://outside:0"], listening, "box")
