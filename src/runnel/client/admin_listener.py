"""The admin listeners of brokers: found by Kafka's protocol, read by HTTP."""

import asyncio
import http.client
import json
from typing import Any

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.model.configs import ResourceType

SETTING = "admin.listeners"
TIMEOUT_S = 3.0
BODY_BYTES_MAX = 64 * 1024 * 1024

_ANY_HOST = frozenset({"", "0.0.0.0", "::", "[::]"})


async def admin_address(cluster: Cluster, node_id: int) -> tuple[str, int] | None:
    """The address of a broker's admin listener; None if it has none, or is not a broker of this kind."""
    try:
        settings = await Admin(cluster).settings(ResourceType.BROKER, str(node_id), keys=[SETTING])
    except ClientError:
        return None
    value = next((setting.value for setting in settings if setting.name == SETTING), None)
    first = (value or "").split(",")[0].strip().rpartition("://")[2]
    host, _, port = first.rpartition(":")
    if not port.isdecimal() or int(port) == 0:
        return None
    if host in _ANY_HOST:
        host = cluster.nodes[node_id].host
    return host.strip("[]"), int(port)


async def get_json(address: tuple[str, int], path: str) -> dict[str, Any] | None:
    """A JSON document of an admin listener; None if there is none."""
    return await asyncio.to_thread(_get, address, path)


def _get(address: tuple[str, int], path: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(BODY_BYTES_MAX)
        document = json.loads(body) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return document if isinstance(document, dict) else None
