"""Listener addresses in Kafka's format: NAME://host:port."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from runnel.server.layers import BadSettings

EXAMPLE = "PLAINTEXT://127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Address:
    """A listener: name, host and port. An empty host binds all interfaces, port 0 picks a free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse NAME://host:port; the host may be empty or an IPv6 address in brackets."""
    name, separator, endpoint = text.partition("://")
    host, colon, port = endpoint.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65535:
        raise BadSettings(f"{text!r} is not a listener address: expected NAME://host:port, such as {EXAMPLE}")
    return Address(name.upper(), host.removeprefix("[").removesuffix("]"), int(port))


def check_distinct(addresses: Sequence[Address]) -> None:
    """BadSettings if two listeners have the same name, or the same port of the same kind of address."""
    for index, address in enumerate(addresses):
        for other in addresses[:index]:
            if other.name == address.name:
                raise BadSettings(f"listeners has two listeners named {address.name}: rename one")
            if address.port and other.port == address.port and not _are_different_families(address, other):
                raise BadSettings(
                    f"listeners has the port {address.port} twice ({other} and {address}): choose another "
                    "port for one, unless one address is IPv4 and the other IPv6"
                )


def is_loopback(host: str) -> bool:
    """Whether a host is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _are_different_families(first: Address, second: Address) -> bool:
    return {_family(first.host), _family(second.host)} == {4, 6}


def _family(host: str) -> int:
    """4 or 6 for an IP address, 0 for a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return 0
