"""How nodes and clients of a cluster authenticate: not at all, or by certificates (mutual TLS).

With certificates every listener requires one, each node and each kind of client is a principal of its own,
and clients have the permissions that ACLs grant them. The files of a node or client keep their names when
their content is rotated; clients read them when they are created.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.certificates import CertificateAuthority
from tools.settings import STANDARD_AUTHORIZER, pem_stores

Properties = Mapping[str, str]
"""Of a client, by names that librdkafka and Runnel's own client understand."""

ADMIN = "admin"
"""The operator: creates topics and ACLs, and changes settings. A super user, as the nodes are."""
OBSERVER = "observer"
"""Reads everything and changes nothing."""
SUPER_USERS = "super.users"


class Security:
    """No security: clear text, and everyone may do everything."""

    client_listener = "PLAINTEXT"
    inter_broker_listener = "PLAINTEXT"
    protocol = "PLAINTEXT"

    def client(self, name: str) -> dict[str, str]:
        """The properties of a client with this name."""
        return {}

    def context(self, name: str) -> ssl.SSLContext | None:
        """The TLS of a connection of this client; None for clear text."""
        return None

    def settings(self, node: int, address: str) -> dict[str, str]:
        """What a node has in its server.properties for it."""
        return {}


NO_SECURITY = Security()


@dataclass(slots=True)
class NodeFiles:
    """The stores of a node, and what its key store contains."""

    address: str
    key_store: Path
    trust_store: Path
    serial: int
    versions: int = 1
    """How many files each store had so far."""


@dataclass(slots=True)
class MutualTls(Security):
    """Certificates of a CA of its own, in one folder."""

    folder: Path
    ca: CertificateAuthority = field(default_factory=lambda: CertificateAuthority("CA 1"))
    client_listener = "CLIENTS"
    inter_broker_listener = "BROKERS"
    protocol = "SSL"
    trusted: list[CertificateAuthority] = field(default_factory=list)
    nodes: dict[int, NodeFiles] = field(default_factory=dict)
    clients: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.trusted = [self.ca]
        self.folder.mkdir(parents=True)

    # Nodes.

    def settings(self, node: int, address: str) -> dict[str, str]:
        """Its stores at their current locations, which are created at first."""
        if node not in self.nodes:
            home = self.folder / node_name(node)
            home.mkdir()
            self.nodes[node] = NodeFiles(address, home / "key-1.pem", home / "trust-1.pem", 0)
            self.write_key_store(node)
            self.write_trust_store(node)
        files = self.nodes[node]
        # Nodes that are added later included.
        supers = [f"User:CN={name}" for name in (ADMIN, *map(node_name, range(1, 10)))]
        return {
            **pem_stores(files.key_store, files.trust_store),
            "ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            SUPER_USERS: ";".join(supers),
        }

    def write_key_store(self, node: int) -> None:
        """A new key with a certificate of the current CA, at the current location."""
        files = self.nodes[node]
        issued = self.ca.issue(node_name(node), (files.address,))
        _replace(files.key_store, issued.key_pem() + issued.chain_pem())
        files.serial = issued.serial

    def write_trust_store(self, node: int) -> None:
        _replace(self.nodes[node].trust_store, self._trusted())

    def move_stores(self, node: int) -> None:
        """Other locations from now on; the files there are not written yet."""
        files = self.nodes[node]
        files.versions += 1
        files.key_store = files.key_store.with_name(f"key-{files.versions}.pem")
        files.trust_store = files.trust_store.with_name(f"trust-{files.versions}.pem")

    # Clients.

    def client(self, name: str) -> dict[str, str]:
        """The files of a client, which are created at first."""
        home = self.folder / name
        if name not in self.clients:
            home.mkdir()
            self.clients.add(name)
            self.write_client(name)
        return {
            "security.protocol": self.protocol,
            "ssl.ca.location": str(home / "trust.pem"),
            "ssl.certificate.location": str(home / "certificate.pem"),
            "ssl.key.location": str(home / "key.pem"),
        }

    def write_client(self, name: str) -> None:
        """A new key with a certificate of the current CA, and what is trusted now."""
        issued = self.ca.issue(name, ())
        home = self.folder / name
        _replace(home / "trust.pem", self._trusted())
        _replace(home / "certificate.pem", issued.chain_pem())
        _replace(home / "key.pem", issued.key_pem())

    def context(self, name: str) -> ssl.SSLContext:
        properties = self.client(name)
        context = ssl.create_default_context(cafile=properties["ssl.ca.location"])
        context.load_cert_chain(properties["ssl.certificate.location"], properties["ssl.key.location"])
        return context

    def _trusted(self) -> bytes:
        return "".join(ca.pem() for ca in self.trusted).encode()


def node_name(node: int) -> str:
    return f"node-{node}"


def served_serial(connection: ssl.SSLSocket) -> int:
    """The serial number of the certificate that a listener presents."""
    found = connection.getpeercert()
    assert found is not None
    return int(str(found["serialNumber"]), 16)


def _replace(path: Path, content: bytes) -> None:
    """Write a file that is complete whenever it is read."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.chmod(0o600)
    os.replace(new, path)
