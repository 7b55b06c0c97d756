"""The settings of several nodes on one machine: ids, ports and data directories in sequence.

`runnel serve --workers N` runs N brokers of one host, of which the first may be a voter of the quorum;
`runnel cluster up` runs a whole cluster, of which every node is a voter.
"""

import os
import re
from collections.abc import Mapping

from runnel.controller.config_broker_cluster import BROKER_ROLE, CONTROLLER_ROLE
from runnel.controller.config_broker_node import ADMIN_LISTENERS, OFF
from runnel.controller.config_security import PLAINTEXT
from runnel.controller.config_types import parse_host_port
from runnel.controller.settings import Settings
from runnel.disk.identity import new_id, read_identity
from runnel.disk.os_files import OsFiles
from runnel.model.ids import id_text
from runnel.server.addresses import Address
from runnel.server.layers import BadSettings
from runnel.server.ports import free_ports, is_free
from runnel.server.roles import Roles, data_directory, roles_of
from runnel.server.shells import SystemEntropy

CONTROLLER = "CONTROLLER"
REPLICAS_MAX = 3
PORT_MAX = 65535


def worker_settings(static: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """The settings of the brokers of this host; the first has the given ones. Raises BadSettings."""
    first = _with_quorum(static)
    settings = Settings(first)
    roles = roles_of(settings)
    if not roles.is_broker:
        raise BadSettings("--workers is for brokers: run a node whose process.roles is controller without it")
    folder = data_directory(settings)
    check_folders(folder, count)
    admin = admin_listeners(settings, count)
    first[ADMIN_LISTENERS] = admin[0]
    taken = {address.port for address in roles.listeners}
    ports = {address.name: address.port for address in roles.broker_listeners}
    nodes = [first]
    for number in range(1, count):
        node_id = roles.node_id + number
        if node_id in roles.voters:
            raise BadSettings(
                f"worker {number + 1} would be node {node_id}, which is in controller.quorum.voters: leave "
                "room between the ids of hosts"
            )
        ports = {name: _next_port(port, taken) for name, port in ports.items()}
        worker = _worker(first, roles, node_id, worker_folder(folder, number), ports)
        nodes.append({**worker, ADMIN_LISTENERS: admin[number]})
    return nodes


def cluster_settings(
    static: Mapping[str, str],
    *,
    count: int,
    host: str,
    port: int,
    folder: str,
    cluster_id: str,
    protocol: str = PLAINTEXT,
) -> list[dict[str, str]]:
    """The settings of a cluster on this machine, with ports from `port` on; 0 picks free ones.

    All listeners use the security protocol.
    """
    ports = list(range(port, port + 2 * count)) if port else free_ports(host, 2 * count)
    if max(ports) > PORT_MAX:
        raise BadSettings(f"{count} nodes need {2 * count} ports from {port} on, up to {PORT_MAX}")
    clients, controllers = ports[:count], ports[count:]
    authority = f"[{host}]" if ":" in host else host
    voters = ",".join(f"{number}@{authority}:{each}" for number, each in enumerate(controllers, 1))
    replicas = min(count, REPLICAS_MAX)
    secured = {
        "listener.security.protocol.map": f"{protocol}:{protocol},{CONTROLLER}:{protocol}",
        "inter.broker.listener.name": protocol,
    }
    if protocol == PLAINTEXT:
        secured = {}
    admin = admin_listeners(
        Settings({name: static[name] for name in (ADMIN_LISTENERS,) if name in static}), count
    )
    return [
        {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            **_internal_topics(replicas),
            **static,
            ADMIN_LISTENERS: admin[number - 1],
            "process.roles": f"{BROKER_ROLE},{CONTROLLER_ROLE}",
            "node.id": str(number),
            "cluster.id": cluster_id,
            "controller.quorum.voters": voters,
            "controller.listener.names": CONTROLLER,
            **secured,
            "listeners": f"{protocol}://{authority}:{client},{CONTROLLER}://{authority}:{controller}",
            "log.dirs": os.path.join(folder, f"node-{number}"),
        }
        for number, (client, controller) in enumerate(zip(clients, controllers, strict=True), 1)
    ]


def admin_listeners(settings: Settings, count: int) -> list[str]:
    """The admin listeners of nodes on this machine, with ports in sequence.

    Unless they are set, those whose port is in use are off.
    """
    words = settings.words(ADMIN_LISTENERS)
    if words == [OFF]:
        return [OFF] * count
    is_explicit = settings.is_set(ADMIN_LISTENERS)
    listeners = []
    for number in range(count):
        addresses = [(host, port + number if port else 0) for host, port in map(parse_host_port, words)]
        is_possible = is_explicit or all(is_free(host, port) for host, port in addresses)
        shown = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]
        listeners.append(",".join(shown) if is_possible else OFF)
    return listeners


def cluster_id_in(folder: str) -> str:
    """The id of the cluster whose nodes are in this folder, or a new one."""
    for number in node_numbers(folder):
        identity = read_identity(OsFiles(), os.path.join(folder, f"node-{number}"))
        if identity is not None and identity.cluster_id:
            return identity.cluster_id
    return id_text(new_id(SystemEntropy()))


def node_numbers(folder: str) -> list[int]:
    """The numbers of the nodes that have directories in this folder."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name.removeprefix("node-")) for name in names if re.fullmatch(r"node-\d+", name))


def worker_folder(folder: str, number: int) -> str:
    """The data directory of a worker; the first one has that of the host."""
    return folder if number == 0 else f"{folder}-worker-{number + 1}"


def _with_quorum(static: Mapping[str, str]) -> dict[str, str]:
    """The settings of the first worker. Without process.roles, it is the controller of this host."""
    first = dict(static)
    roles = roles_of(Settings(first))
    listeners = []
    for address in roles.listeners:
        host = address.host or "0.0.0.0"
        port = address.port or free_ports(host, 1)[0]
        listeners.append(Address(address.name, address.host, port))
    if roles.is_alone:
        controller = Address(CONTROLLER, "127.0.0.1", free_ports("127.0.0.1", 1)[0])
        listeners.append(controller)
        first |= {
            **_internal_topics(1),
            **static,
            "process.roles": f"{BROKER_ROLE},{CONTROLLER_ROLE}",
            "node.id": str(roles.node_id),
            "controller.quorum.voters": f"{roles.node_id}@{controller.host}:{controller.port}",
            "controller.listener.names": CONTROLLER,
            "inter.broker.listener.name": roles.inter_broker_listener,
        }
        if "listener.security.protocol.map" in static:
            first["listener.security.protocol.map"] += f",{CONTROLLER}:PLAINTEXT"
        first.pop("security.inter.broker.protocol", None)
    first["listeners"] = ",".join(map(str, listeners))
    first["log.dirs"] = data_directory(Settings(first))
    return first


def _worker(
    first: Mapping[str, str], roles: Roles, node_id: int, folder: str, ports: Mapping[str, int]
) -> dict[str, str]:
    settings = {**first, "process.roles": BROKER_ROLE, "node.id": str(node_id), "log.dirs": folder}
    settings.pop("broker.id", None)
    settings.pop("metadata.log.dir", None)
    listeners = [Address(each.name, each.host, ports[each.name]) for each in roles.broker_listeners]
    settings["listeners"] = ",".join(map(str, listeners))
    if roles.advertised:
        moved = {each.name: ports[each.name] - each.port for each in roles.broker_listeners}
        settings["advertised.listeners"] = ",".join(
            str(Address(each.name, each.host, each.port and each.port + moved[each.name]))
            for each in roles.advertised
            if each.name in moved
        )
    return settings


def _next_port(port: int, taken: set[int]) -> int:
    port += 1
    while port in taken:
        port += 1
    if port > PORT_MAX:
        raise BadSettings(f"there is no port for another worker up to {PORT_MAX}: choose a lower one")
    taken.add(port)
    return port


def check_folders(folder: str, count: int) -> None:
    """Refuse to start without a worker that has a directory, as its replicas would be missing."""
    name = re.compile(re.escape(os.path.basename(folder)) + r"-worker-(\d+)")
    parent = os.path.dirname(folder)
    found = os.listdir(parent) if os.path.isdir(parent) else []
    highest = max((int(match[1]) for each in found if (match := name.fullmatch(each))), default=1)
    if highest > count:
        raise BadSettings(
            f"{folder}-worker-{highest} belongs to worker {highest}, and --workers is {count}: start "
            f"{highest} workers, or first move its replicas away (`runnel cluster drain`) and remove it"
        )


def _internal_topics(replicas: int) -> dict[str, str]:
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }
