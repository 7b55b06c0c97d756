"""A node of Apache Kafka with a listener of every security protocol, and properties of clients for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.broker_process import free_port
from tools.certificates import CaFolder, KeyFiles
from tools.kafka import node
from tools.settings import SCRAM_LOGIN, login_config, pem_stores, plain_users

PLAIN_USER, SCRAM_USER = "alice", "bob"
PASSWORD = "hunter2-of-a-test"
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS = 5_000


@dataclass(frozen=True, slots=True)
class SecuredNode:
    """A running node. Its listener SSL requires a certificate of the client."""

    plain_port: int
    ports: dict[str, int]
    ca: CaFolder
    client: KeyFiles

    def bootstrap(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def properties(self, protocol: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """What a client needs for one of the listeners, by Kafka's names."""
        given = {"security.protocol": protocol}
        if protocol != "SASL_PLAINTEXT":
            given |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca.certificate),
            }
        if protocol == "SSL":
            return given | pem_stores(self.client.pem)
        user = PLAIN_USER if mechanism == "PLAIN" else SCRAM_USER
        login = login_config(mechanism, user, PASSWORD)
        return given | {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


@contextmanager
def secured_node(folder: Path) -> Iterator[SecuredNode]:
    """Start a node of Apache Kafka."""
    ca = CaFolder(folder)
    server = ca.issue("server", "127.0.0.1")
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    settings = {
        "listener.security.protocol.map": ",".join(
            ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *(f"{name}:{name}" for name in PROTOCOLS))
        ),
        **pem_stores(server.pem, ca.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = plain_users({PLAIN_USER: PASSWORD})
        for mechanism in MECHANISMS[1:]:
            settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{SCRAM_LOGIN};"
    users = [
        option
        for mechanism in MECHANISMS[1:]
        for option in ("--add-scram", f"{mechanism}=[name={SCRAM_USER},password={PASSWORD}]")
    ]
    running = node.start(
        folder / "node",
        settings,
        tuple(users),
        flags=node.QUICK_START,
        listeners=tuple(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
    )
    try:
        yield SecuredNode(running.port, ports, ca, ca.issue("client"))
    finally:
        running.stop()
