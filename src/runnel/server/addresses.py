"""Listener addresses in Kafka's format: NAME://host:port."""

from dataclasses import dataclass

from runnel.controller.config_security import PLAINTEXT, listener_protocols
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


def listen_address(listeners: list[str], protocol_map: str) -> Address:
    """The address to listen on. Raises for several listeners and for protocols other than PLAINTEXT."""
    if len(listeners) != 1:
        raise BadSettings(f"exactly one listener is supported, not {len(listeners)}: {','.join(listeners)}")
    address = parse_address(listeners[0])
    protocols = listener_protocols(protocol_map).get(address.name, [address.name])
    if protocols != [PLAINTEXT]:
        raise BadSettings(f"{address} uses {' and '.join(protocols)}, only {PLAINTEXT} is supported")
    return address


def advertised_address(advertised: list[str], listening: Address, machine_name: str) -> Address:
    """The advertised address; a wildcard host is replaced by the machine's name."""
    if advertised:
        chosen = [address for text in advertised if (address := parse_address(text)).name == listening.name]
        if not chosen:
            raise BadSettings(f"advertised.listeners has no address for the listener {listening.name}")
        address = chosen[0]
        return Address(address.name, address.host, address.port or listening.port)
    host = machine_name if listening.host in ("", "0.0.0.0", "::") else listening.host
    return Address(listening.name, host, listening.port)
