"""The admin listeners of brokers: found by Kafka's protocol, read by HTTP."""

import asyncio
import ipaddress
import json
import socket
from typing import Any, TypeAlias

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.http_get import GetFailed, get
from runnel.model.configs import ResourceType

ADMIN_LISTENERS = "admin.listeners"
TIMEOUT_S = 5.0
BODY_BYTES_MAX = 64 * 1024 * 1024

_ANY_HOST = frozenset({"", "0.0.0.0", "::", "*"})
PORT_MAX = 65535

Address: TypeAlias = tuple[str, int]


async def find(cluster: Cluster, node_id: int, broker_host: str) -> Address | None:
    """The address of an admin listener; None if there is none that can be reached. Raises ClientError."""
    settings = await Admin(cluster).settings(ResourceType.BROKER, str(node_id), keys=[ADMIN_LISTENERS])
    text = next((each.value for each in settings if each.name == ADMIN_LISTENERS), None)
    return await reachable(parse(text or "", broker_host), broker_host)


async def find_if_known(cluster: Cluster, node_id: int) -> Address | None:
    """The same; None as well if the broker does not answer, or does not know the setting."""
    try:
        return await find(cluster, node_id, cluster.nodes[node_id].host)
    except (ClientError, KeyError):
        return None


async def read(address: Address, path: str) -> bytes:
    """A page of an admin listener. Raises GetFailed."""
    return await get(*address, path, timeout_s=TIMEOUT_S, body_bytes_max=BODY_BYTES_MAX)


async def read_json(address: Address, path: str) -> dict[str, Any] | None:
    """A JSON document of an admin listener; None if there is none."""
    try:
        document = json.loads(await read(address, path))
    except (GetFailed, ValueError):
        return None
    return document if isinstance(document, dict) else None


def parse(text: str, broker_host: str) -> Address | None:
    """The first address of `admin.listeners`; one without a host, or with any, is on the broker's host."""
    first = text.split(",")[0].strip().rpartition("://")[2]
    host, colon, port = first.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        return None
    return (broker_host if host in _ANY_HOST else host), int(port)


async def reachable(address: Address | None, broker_host: str) -> Address | None:
    """The address, unless it is a loopback address of another machine: here it would be another broker's."""
    if address is None or not _is_loopback(address[0]):
        return address
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(broker_host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    return address if any(_is_of_this_machine(family, str(place[0])) for family, *_, place in found) else None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_of_this_machine(family: int, host: str) -> bool:
    """Only an address of this machine can be bound."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
