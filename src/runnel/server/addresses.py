"""Listener addresses as Kafka writes them: NAME://host:port."""

from dataclasses import dataclass

from runnel.controller.config_security import PLAINTEXT, listener_protocols
from runnel.server.layers import BadSettings

EXAMPLE = "PLAINTEXT://127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Address:
    """One listener: its name, and where it is. No host means every address, port 0 means a free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address in NAME://host:port, host possibly empty or in brackets (IPv6)."""
    name, separator, place = text.partition("://")
    host, colon, port = place.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65535:
        raise BadSettings(f"{text!r} is not a listener address: write NAME://host:port, such as {EXAMPLE}")
    return Address(name.upper(), host.removeprefix("[").removesuffix("]"), int(port))


def listen_address(listeners: list[str], protocol_map: str) -> Address:
    """The one address to listen at; more, or other protocols than plain text, are refused by name."""
    if len(listeners) != 1:
        raise BadSettings(f"exactly one listener is supported, not {len(listeners)}: {','.join(listeners)}")
    address = parse_address(listeners[0])
    protocols = listener_protocols(protocol_map).get(address.name, [address.name])
    if protocols != [PLAINTEXT]:
        raise BadSettings(f"{address} asks for {' and '.join(protocols)}, only {PLAINTEXT} is supported")
    return address


def advertised_address(advertised: list[str], listening: Address, machine_name: str) -> Address:
    """Where clients are told to connect; a wildcard is no such place, so it becomes this machine's name."""
    if advertised:
        chosen = [address for text in advertised if (address := parse_address(text)).name == listening.name]
        if not chosen:
            raise BadSettings(f"advertised.listeners has no address for the listener {listening.name}")
        address = chosen[0]
        return Address(address.name, address.host, address.port or listening.port)
    host = machine_name if listening.host in ("", "0.0.0.0", "::") else listening.host
    return Address(listening.name, host, listening.port)
