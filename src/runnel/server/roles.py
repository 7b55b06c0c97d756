"""The roles, listeners and controllers of a node, validated as in Kafka.

| process.roles     | listeners                    | serves                                  |
|-------------------|------------------------------|-----------------------------------------|
| broker            | none of controllers          | clients; follows a quorum of others     |
| controller        | of controllers only          | a quorum                                |
| broker,controller | both                         | both                                    |
| not set           | none of controllers          | both, as a quorum of one                |
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from runnel.controller.config_broker_cluster import (
    BROKER_ROLE,
    CONTROLLER_ROLE,
    parse_bootstrap_servers,
    parse_voters,
)
from runnel.controller.config_security import PLAINTEXT, listener_protocols
from runnel.controller.settings import Settings
from runnel.model.security_protocol import SecurityProtocol
from runnel.server.addresses import Address, check_distinct, parse_address
from runnel.server.layers import BadSettings

NONROUTABLE = ("0.0.0.0", "::")
SECURE = frozenset(each.name for each in SecurityProtocol) - {PLAINTEXT}


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles, listeners and controllers of a node."""

    node_id: int
    is_broker: bool
    is_controller: bool
    is_alone: bool
    """Without process.roles: the node is a quorum of one, whose controller has no listener."""
    listeners: tuple[Address, ...]
    """The addresses to listen on."""
    advertised: tuple[Address, ...]
    """The configured advertised addresses; a port 0 becomes the port of the listener."""
    controller_listener_names: tuple[str, ...]
    protocols: Mapping[str, SecurityProtocol]
    """The security protocols of the listeners and of controllers, by the names of the listeners."""
    inter_broker_listener: str
    """Empty on a node that is only a controller."""
    voters: Mapping[int, tuple[str, int]]
    """The addresses of a static quorum by node id."""
    bootstrap_servers: tuple[tuple[str, int], ...]

    @property
    def controller_listeners(self) -> tuple[Address, ...]:
        """The listeners of the controller, in the order of controller.listener.names."""
        by_name = {listener.name: listener for listener in self.listeners}
        return tuple(by_name[name] for name in self.controller_listener_names if name in by_name)

    @property
    def broker_listeners(self) -> tuple[Address, ...]:
        """The listeners of the broker."""
        return tuple(each for each in self.listeners if each.name not in self.controller_listener_names)

    @property
    def has_other_controllers(self) -> bool:
        """Whether the settings name a controller other than this node."""
        if self.voters:
            return set(self.voters) != {self.node_id}
        return not self.is_alone and not self._bootstraps_from_itself()

    @property
    def other_controllers(self) -> dict[str, tuple[str, int]]:
        """The addresses of the other controllers that the settings name, by their entries there."""
        if self.voters:
            return {
                f"{node_id}@{host}:{port}": (host, port)
                for node_id, (host, port) in sorted(self.voters.items())
                if node_id != self.node_id
            }
        return {f"{host}:{port}": (host, port) for host, port in self.bootstrap_servers}

    def warnings(self) -> list[str]:
        """Settings that are valid and probably wrong."""
        own = self.voters.get(self.node_id)
        if own is None or not self.is_controller:
            return []
        ports = {
            each.port
            for each in (*self.listeners, *self.advertised)
            if each.name in self.controller_listener_names
        }
        if own[1] in ports:
            return []
        return [
            f"controller.quorum.voters lists this node at {own[0]}:{own[1]}, but its controller listens on "
            f"port {', '.join(map(str, sorted(ports)))}: others may not reach it"
        ]

    def endpoint(self, listener: Address, machine_name: Callable[[], str]) -> Address:
        """The advertised address of a listener whose port is bound.

        The wildcard address is advertised as the name of the machine.
        """
        for address in self.advertised:
            if address.name == listener.name:
                return Address(address.name, address.host or machine_name(), address.port or listener.port)
        host = machine_name() if listener.host in ("", *NONROUTABLE) else listener.host
        return Address(listener.name, host, listener.port)

    def _bootstraps_from_itself(self) -> bool:
        """Whether controller.quorum.bootstrap.servers names this node only."""
        own = {
            (address.host, address.port)
            for address in (*self.controller_listeners, *self.advertised)
            if address.name in self.controller_listener_names
        }
        for host, port in tuple(own):
            if host in ("", *NONROUTABLE, "127.0.0.1", "::1", "localhost"):
                own |= {("localhost", port), ("127.0.0.1", port), ("::1", port)}
        return self.is_controller and set(self.bootstrap_servers) <= own


def roles_of(settings: Settings) -> Roles:
    """The roles that the settings describe. Raises BadSettings."""
    names = settings.words("process.roles")
    if settings.int("broker.id") not in (-1, settings.int("node.id")):
        raise BadSettings("node.id and broker.id differ: remove broker.id, the former name of node.id")
    roles = Roles(
        node_id=settings.int("node.id"),
        is_broker=not names or BROKER_ROLE in names,
        is_controller=not names or CONTROLLER_ROLE in names,
        is_alone=not names,
        listeners=tuple(map(parse_address, settings.words("listeners"))),
        advertised=tuple(map(parse_address, settings.words("advertised.listeners"))),
        controller_listener_names=tuple(
            name.upper() for name in settings.words("controller.listener.names") if name
        ),
        protocols={},
        inter_broker_listener=_inter_broker_listener(settings),
        voters=parse_voters(settings.words("controller.quorum.voters")),
        bootstrap_servers=tuple(
            parse_bootstrap_servers(settings.words("controller.quorum.bootstrap.servers"))
        ),
    )
    if roles.is_alone:
        _check_alone(roles)
    else:
        _check_quorum(roles, settings)
    _check_listeners(roles)
    roles = replace(roles, protocols=_protocols(roles, settings))
    if not roles.is_alone:
        _check_controller_listeners(roles)
    if roles.is_broker:
        _check_broker_listeners(roles)
    return roles


def data_directory(settings: Settings) -> str:
    """The data directory of a node."""
    folders = settings.words("log.dirs") or [settings.text("log.dir") or ""]
    if len(folders) != 1:
        raise BadSettings(f"exactly one data directory is supported, not {','.join(folders)}")
    folder = os.path.abspath(folders[0])
    metadata = settings.text("metadata.log.dir")
    if metadata and os.path.abspath(metadata) != folder:
        # Without its log a voter would have lost what it acknowledged, and its votes.
        raise BadSettings(
            f"metadata.log.dir must be the data directory {folder}: move {metadata}/__cluster_metadata-0 "
            "there, and remove the setting"
        )
    return folder


def _inter_broker_listener(settings: Settings) -> str:
    names = settings.words("process.roles")
    if names and BROKER_ROLE not in names:
        return ""
    named = settings.text("inter.broker.listener.name")
    if named:
        if settings.is_set("security.inter.broker.protocol"):
            raise BadSettings(
                "only one of inter.broker.listener.name and security.inter.broker.protocol may be set: "
                "remove the second"
            )
        return named.upper()
    if not names:
        # A single node connects to no other broker: any of its listeners will do.
        listening = [parse_address(text).name for text in settings.words("listeners")]
        return PLAINTEXT if PLAINTEXT in listening or not listening else listening[0]
    return settings.text("security.inter.broker.protocol") or PLAINTEXT


def _check_listeners(roles: Roles) -> None:
    if not roles.listeners:
        raise BadSettings("listeners is empty: set it, for example to PLAINTEXT://:9092")
    check_distinct(roles.listeners)
    names = {listener.name for listener in roles.listeners}
    for address in roles.advertised:
        if address.name not in names:
            raise BadSettings(
                f"advertised.listeners has {address.name}, which is not in listeners: "
                f"advertise only {_listed(sorted(names))}"
            )
        if address.host in NONROUTABLE:
            raise BadSettings(
                f"advertised.listeners has {address}, to which no client can connect: use the name or the "
                "address of this machine"
            )


def _protocols(roles: Roles, settings: Settings) -> dict[str, SecurityProtocol]:
    """The protocols of all listeners that the roles name."""
    mapped = listener_protocols(settings.text("listener.security.protocol.map") or "")
    names = dict.fromkeys((*(each.name for each in roles.listeners), *roles.controller_listener_names))
    is_plain = not any(name in SECURE for name in names)
    if is_plain and not settings.is_set("listener.security.protocol.map"):
        # Without an explicit map and a listener named after a secure protocol, as in Kafka.
        for name in roles.controller_listener_names:
            mapped.setdefault(name, [PLAINTEXT])
    protocols = {}
    for name in names:
        known = mapped.get(name)
        if known is None:
            raise BadSettings(
                f"the listener {name} has no security protocol: add {name}:{PLAINTEXT} to "
                "listener.security.protocol.map"
            )
        if len(known) > 1:
            raise BadSettings(
                f"listener.security.protocol.map has {name} twice, as {' and '.join(known)}: remove one"
            )
        if known[0] not in SecurityProtocol.__members__:
            raise BadSettings(
                f"listener.security.protocol.map gives {name} the unknown protocol {known[0]}: choose one of "
                f"{_listed(SecurityProtocol.__members__)}"
            )
        protocols[name] = SecurityProtocol[known[0]]
    return protocols


def _check_alone(roles: Roles) -> None:
    for name, value in (
        ("controller.quorum.voters", roles.voters),
        ("controller.quorum.bootstrap.servers", roles.bootstrap_servers),
        ("controller.listener.names", roles.controller_listener_names),
    ):
        if value:
            raise BadSettings(
                f"{name} is set, but process.roles is not: set process.roles to broker, controller or "
                f"broker,controller, or remove {name} to run a cluster of one node"
            )


def _check_quorum(roles: Roles, settings: Settings) -> None:
    if not settings.is_set("node.id"):
        raise BadSettings("process.roles is set, but node.id is not: give each node an id of its own")
    if not roles.voters and not roles.bootstrap_servers:
        raise BadSettings(
            "process.roles is set, but not the way to the quorum: list its controllers in "
            "controller.quorum.bootstrap.servers (host:port) or controller.quorum.voters (id@host:port)"
        )
    if not roles.controller_listener_names:
        raise BadSettings(
            "process.roles is set, but controller.listener.names is not: name the listener of the "
            "controllers, usually CONTROLLER"
        )
    if not roles.voters:
        return
    voters = _listed(map(str, sorted(roles.voters)))
    if roles.is_controller and roles.node_id not in roles.voters:
        raise BadSettings(
            f"node.id {roles.node_id} is not in controller.quorum.voters ({voters}): add it, or remove "
            "controller from process.roles"
        )
    if not roles.is_controller and roles.node_id in roles.voters:
        raise BadSettings(
            f"node.id {roles.node_id} is in controller.quorum.voters ({voters}), but process.roles is "
            "broker: add controller to process.roles, or choose another node.id"
        )


def _check_controller_listeners(roles: Roles) -> None:
    names = {listener.name for listener in roles.listeners}
    controllers = set(roles.controller_listener_names)
    if not roles.is_controller and names & controllers:
        raise BadSettings(
            f"listeners has {_listed(sorted(names & controllers))} of controller.listener.names, but "
            "process.roles is broker: remove it from listeners"
        )
    if roles.is_controller and not controllers <= names:
        raise BadSettings(
            f"controller.listener.names has {_listed(sorted(controllers - names))}, which is not in "
            f"listeners: add it, for example {min(controllers - names)}://:9093"
        )
    if not roles.is_broker and not names <= controllers:
        raise BadSettings(
            f"listeners has {_listed(sorted(names - controllers))}, but process.roles is controller: only "
            "listeners of controller.listener.names are served by a controller"
        )


def _check_broker_listeners(roles: Roles) -> None:
    if not roles.broker_listeners:
        raise BadSettings(
            "all listeners are in controller.listener.names: add a listener for clients, for example "
            "PLAINTEXT://:9092"
        )
    served = [listener.name for listener in roles.broker_listeners]
    if roles.inter_broker_listener not in served:
        raise BadSettings(
            f"inter.broker.listener.name is {roles.inter_broker_listener}, which is not a listener of this "
            f"broker: set it to one of {_listed(served)}"
        )
    advertised = {address.name for address in roles.advertised}
    if advertised and roles.inter_broker_listener not in advertised:
        raise BadSettings(
            f"inter.broker.listener.name is {roles.inter_broker_listener}, which is not in "
            "advertised.listeners: add its address, so that other brokers can connect"
        )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
