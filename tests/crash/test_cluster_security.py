"""The security of clusters that tools run: the settings of nodes, and the certificates they accept."""

import ssl
from pathlib import Path

from tools.broker_process import free_port
from tools.certificates import CertificateAuthority
from tools.cluster.nodes import Blueprint, Place, RunnelNode
from tools.cluster.security import MutualTls
from tools.crash.chain.workers import WORKERS
from tools.crash.cluster.acls import bindings
from tools.crash.cluster.rotation import connect, probe_context
from tools.settings import read_properties, write_properties

HOST = "127.0.0.1"


def test_all_listeners_of_a_secured_node_use_tls(tmp_path: Path) -> None:
    security = MutualTls(tmp_path / "security")
    properties = Blueprint({1: "one:9093"}, security=security).properties(Place(1, HOST, tmp_path, tmp_path))
    names = [listener.partition(":")[0] for listener in properties["listeners"].split(",")]
    protocols = dict(pair.split(":") for pair in properties["listener.security.protocol.map"].split(","))
    assert sorted(protocols) == sorted(names) == ["BROKERS", "CLIENTS", "CONTROLLER"]
    assert set(protocols.values()) == {"SSL"}
    assert properties["ssl.client.auth"] == "required"
    assert "PLAINTEXT" not in str(properties)


def test_a_node_without_security_uses_plaintext(tmp_path: Path) -> None:
    properties = Blueprint({1: "one:9093"}).properties(Place(1, HOST, tmp_path, tmp_path))
    assert properties["listeners"] == f"PLAINTEXT://{HOST}:9092,CONTROLLER://{HOST}:9093"
    assert properties["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    assert not any(name.startswith("ssl.") or "authorizer" in name for name in properties)


def test_every_client_has_permissions_of_its_own(tmp_path: Path) -> None:
    assert len({binding.principal for binding in bindings()}) == 6
    assert not any(binding.operation.name == "ALL" for binding in bindings())
    properties = MutualTls(tmp_path / "security").client(WORKERS)
    assert read_properties(write_properties(tmp_path / "file", properties)) == properties


def test_a_probe_shows_which_cas_a_listener_trusts(tmp_path: Path) -> None:
    """What `make crash ONLY=rotation` relies on, against a real node."""
    security = MutualTls(tmp_path / "security")
    known, unknown = security.ca, CertificateAuthority("CA 2")
    place = Place(1, HOST, tmp_path, tmp_path / "data", [], free_port(), free_port(), free_port())
    place.data.mkdir()
    node = RunnelNode(place, Blueprint({1: f"{HOST}:{place.controller_port}"}, security=security))
    try:
        node.start()
        for port in (place.client_port, place.broker_port, place.controller_port):
            context = probe_context(known, (known, unknown), tmp_path)
            assert connect(HOST, port, context) == security.nodes[1].serial
            context = probe_context(unknown, (known, unknown), tmp_path)
            assert connect(HOST, port, context) in (None, "[Errno 104] Connection reset by peer")
            without = ssl.create_default_context(cadata=known.pem())
            assert "certificate required" in str(connect(HOST, port, without))
    finally:
        node.kill()
