"""Roles and listeners: what Kafka accepts is accepted, what it refuses is refused, with the remedy."""

import pytest

from runnel.controller.settings import Settings
from runnel.model.security_protocol import SecurityProtocol
from runnel.server.addresses import Address
from runnel.server.layers import BadSettings
from runnel.server.roles import Roles, roles_of

VOTERS = "1@a:9093,2@b:9093,3@c:9093"
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": VOTERS,
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "7",
    "controller.quorum.bootstrap.servers": "a:9093,b:9093",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
}
CONTROLLER = {**COMBINED, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}


def roles(base: dict[str, str], **changes: str | None) -> Roles:
    """Settings with changes; `listener_names` stands for listener.names, None removes one."""
    settings = dict(base)
    for name, value in changes.items():
        settings.pop(name.replace("_", "."), None)
        if value is not None:
            settings[name.replace("_", ".")] = value
    return roles_of(Settings(settings))


def names(addresses: tuple[Address, ...]) -> list[str]:
    return [address.name for address in addresses]


def test_a_node_without_roles_is_a_cluster_of_one() -> None:
    alone = roles({})
    assert (alone.is_broker, alone.is_controller, alone.is_alone) == (True, True, True)
    assert not alone.has_other_controllers
    assert alone.listeners == (Address("PLAINTEXT", "", 9092),)
    assert alone.inter_broker_listener == "PLAINTEXT"


def test_a_single_listener_may_have_any_name() -> None:
    protocols = "INTERNAL:PLAINTEXT"
    alone = roles({}, listeners="INTERNAL://h:1", listener_security_protocol_map=protocols)
    assert alone.inter_broker_listener == "INTERNAL"


def test_a_broker_and_controller() -> None:
    both = roles(COMBINED)
    assert (both.is_broker, both.is_controller, both.is_alone) == (True, True, False)
    assert names(both.broker_listeners) == ["PLAINTEXT"]
    assert names(both.controller_listeners) == ["CONTROLLER"]
    assert both.voters == {1: ("a", 9093), 2: ("b", 9093), 3: ("c", 9093)}
    assert both.has_other_controllers


def test_a_broker_only() -> None:
    broker = roles(BROKER)
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert broker.controller_listeners == ()
    assert broker.controller_listener_names == ("CONTROLLER",)
    assert broker.bootstrap_servers == (("a", 9093), ("b", 9093))
    assert broker.has_other_controllers


def test_a_controller_only() -> None:
    controller = roles(CONTROLLER)
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert controller.broker_listeners == ()
    assert controller.inter_broker_listener == ""


def test_separate_listeners_for_clients_brokers_and_controllers() -> None:
    node = roles(
        COMBINED,
        listeners="CLIENT://:9092,REPLICATION://:9094,CONTROLLER://:9093",
        listener_security_protocol_map="CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="replication",
    )
    assert names(node.broker_listeners) == ["CLIENT", "REPLICATION"]
    assert node.inter_broker_listener == "REPLICATION"


@pytest.mark.parametrize(
    ("changes", "has_others"),
    [
        ({"controller_quorum_voters": "1@elsewhere:9093"}, False),
        ({"controller_quorum_voters": "1@a:9093,2@b:9093"}, True),
        (
            {"controller_quorum_voters": None, "controller_quorum_bootstrap_servers": "localhost:9093"},
            False,
        ),
        (
            {"controller_quorum_voters": None, "controller_quorum_bootstrap_servers": "localhost:9094"},
            True,
        ),
        (
            {
                "controller_quorum_voters": None,
                "controller_quorum_bootstrap_servers": "me.example.com:9093",
                "advertised_listeners": "PLAINTEXT://me.example.com:9092,CONTROLLER://me.example.com:9093",
            },
            False,
        ),
        (
            {
                "controller_quorum_voters": None,
                "controller_quorum_bootstrap_servers": "me.example.com:9093,you.example.com:9093",
                "advertised_listeners": "PLAINTEXT://me.example.com:9092,CONTROLLER://me.example.com:9093",
            },
            True,
        ),
    ],
)
def test_whether_the_settings_name_other_controllers(changes: dict[str, str], has_others: bool) -> None:
    assert roles(COMBINED, **changes).has_other_controllers is has_others


def test_the_server_properties_that_kafka_ships() -> None:
    node = roles(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        }
    )
    assert not node.has_other_controllers


@pytest.mark.parametrize(
    ("base", "changes", "complaint"),
    [
        ({}, {"listeners": ""}, "listeners is empty"),
        ({}, {"listeners": "INTERNAL://h:1"}, "add INTERNAL:PLAINTEXT to listener.security.protocol.map"),
        ({}, {"advertised_listeners": "OTHER://h:1"}, "OTHER, which is not in listeners"),
        ({}, {"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "no client can connect"),
        ({}, {"controller_quorum_voters": VOTERS}, "set process.roles"),
        ({}, {"controller_quorum_bootstrap_servers": "a:1"}, "set process.roles"),
        ({}, {"controller_listener_names": "CONTROLLER"}, "set process.roles"),
        ({}, {"inter_broker_listener_name": "OTHER"}, "one of PLAINTEXT"),
        ({}, {"node_id": "1", "broker_id": "2"}, "remove broker.id"),
        (COMBINED, {"node_id": None}, "node.id is not"),
        (COMBINED, {"controller_quorum_voters": None}, "controller.quorum.bootstrap.servers"),
        (COMBINED, {"controller_listener_names": None}, "controller.listener.names is not"),
        (COMBINED, {"node_id": "4"}, r"node.id 4 is not in controller.quorum.voters \(1, 2, 3\)"),
        (COMBINED, {"listeners": "PLAINTEXT://:9092"}, "add it, for example CONTROLLER://:9093"),
        (COMBINED, {"listeners": "CONTROLLER://:9093"}, "add a listener for clients"),
        (COMBINED, {"inter_broker_listener_name": "CONTROLLER"}, "set it to one of PLAINTEXT"),
        (COMBINED, {"advertised_listeners": "CONTROLLER://h:9093"}, "not in advertised.listeners"),
        (
            COMBINED,
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "only one of",
        ),
        (
            COMBINED,
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"},
            "add CONTROLLER:PLAINTEXT to listener.security.protocol.map",
        ),
        (
            {},
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,plaintext:SSL"},
            "has PLAINTEXT twice, as PLAINTEXT and SSL",
        ),
        (
            {},
            {"listener_security_protocol_map": "PLAINTEXT:TLS"},
            "gives PLAINTEXT the unknown protocol TLS: choose one of PLAINTEXT, SSL",
        ),
        (BROKER, {"controller_quorum_voters": "7@a:1"}, "choose another node.id"),
        (BROKER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "remove it from listeners"),
        (BROKER, {"controller_listener_names": None}, "usually CONTROLLER"),
        (CONTROLLER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "process.roles is controller"),
    ],
)
def test_refused_settings(base: dict[str, str], changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        roles(base, **changes)


def test_each_listener_has_a_protocol() -> None:
    node = roles(
        COMBINED,
        listeners="PLAINTEXT://:9092,INSIDE://:9094,CONTROLLER://:9093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    )
    plain = SecurityProtocol.PLAINTEXT
    assert node.protocols == {"PLAINTEXT": plain, "INSIDE": plain, "CONTROLLER": plain}


def test_a_voter_at_another_port_is_probably_a_mistake() -> None:
    assert roles(COMBINED).warnings() == []
    assert roles(BROKER).warnings() == []
    (warning,) = roles(COMBINED, controller_quorum_voters="1@a:9999,2@b:9093").warnings()
    assert "lists this node at a:9999, but its controller listens on port 9093" in warning


def test_a_wildcard_host_is_advertised_as_the_name_of_the_machine() -> None:
    node = roles({}, listeners="PLAINTEXT://0.0.0.0:0")
    assert node.endpoint(Address("PLAINTEXT", "0.0.0.0", 1), lambda: "box") == Address("PLAINTEXT", "box", 1)
    assert node.endpoint(Address("PLAINTEXT", "::1", 1), lambda: "box") == Address("PLAINTEXT", "::1", 1)


def test_an_advertised_port_zero_becomes_the_bound_port() -> None:
    listening = Address("PLAINTEXT", "", 4711)
    assert roles({}, advertised_listeners="PLAINTEXT://out:0").endpoint(listening, str).port == 4711
    assert roles({}, advertised_listeners="PLAINTEXT://out:80").endpoint(listening, str).port == 80
