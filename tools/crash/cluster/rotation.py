"""Rotates the certificates of all nodes and clients under load: new keys, then a new CA.

    new keys                        of the same CA
    trust the new CA                and the old one
    certificates of the new CA      while both are trusted
    distrust the old CA             whose certificates are then refused

Each step is done node by node, each in another way (file, SIGHUP, dynamic config), then by all clients.
Open connections keep what they have: after each step a node is restarted, after the last one all of them.
"""

import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tools.broker_process import API_VERSIONS_REQUEST
from tools.certificates import CertificateAuthority
from tools.cluster.metadata_records import changes_since
from tools.cluster.nodes import ClusterNode
from tools.cluster.security import ADMIN, MutualTls, served_serial
from tools.crash.cluster.operations import Operations, under_load
from tools.crash.cluster.run import ClusterOutcome
from tools.crash.rounds import Progress

CONTROLLER = "CONTROLLER"
ROTATION_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
PROBE = "probe"


class NotRotated(RuntimeError):
    """A node does not use its new certificate, or still trusts an old CA."""


@dataclass(frozen=True, slots=True)
class Step:
    """An issuer and trusted CAs, which all nodes and clients use before the next step begins."""

    name: str
    issuer: CertificateAuthority
    trusted: tuple[CertificateAuthority, ...]


class Rotation:
    """The steps in one cluster."""

    def __init__(self, running: Operations) -> None:
        world = running.world
        security = world.cluster.security
        assert isinstance(security, MutualTls)
        self.running = running
        self.world = world
        self.security = security
        old, new = security.ca, CertificateAuthority("CA 2")
        self.cas = (old, new)
        self.steps = [
            Step("new keys", old, (old,)),
            Step("trust the new CA", old, (old, new)),
            Step("certificates of the new CA", new, (old, new)),
            Step("distrust the old CA", new, (new,)),
        ]
        self.ways: dict[str, Callable[[ClusterNode], None]] = {
            "file": self._by_file,
            "SIGHUP": self._by_signal,
            "dynamic config": self._by_config,
        }

    def run(self) -> None:
        """All steps, and restarts of nodes between them."""
        nodes = list(self.world.cluster.nodes.values())
        for number, step in enumerate(self.steps):
            self.security.ca, self.security.trusted = step.issuer, list(step.trusted)
            before = changes_since(nodes[0].place.data, 0)
            for node in nodes:
                way = list(self.ways)[(number + node.number) % len(self.ways)]
                self.running.measure(f"{step.name}: node", partial(self._rotate, node, step, way))
            self.running.measure(f"{step.name}: clients", self._renew_clients)
            self._verify_stable(nodes[0].place.data, before.end_offset, step)
            self.running.restart(nodes[number % len(nodes)])
        self.running.rolling_restart()

    # Nodes.

    def _rotate(self, node: ClusterNode, step: Step, way: str) -> str:
        began = time.monotonic()
        self.ways[way](node)
        deadline = began + ROTATION_TIMEOUT_S
        while differences := list(self._differences(node, step)):
            if time.monotonic() > deadline:
                raise NotRotated(f"{step.name}, node {node.number} by {way}: {'; '.join(differences)}")
            time.sleep(0.1)
        return f"{node.number} by {way}, in use after {time.monotonic() - began:.1f} s"

    def _by_file(self, node: ClusterNode) -> None:
        # In this order: a node that serves the new certificate has read the new trust store, or will at once.
        self.security.write_trust_store(node.number)
        self.security.write_key_store(node.number)

    def _by_signal(self, node: ClusterNode) -> None:
        self._by_file(node)
        os.kill(node.pid, signal.SIGHUP)

    def _by_config(self, node: ClusterNode) -> None:
        security = self.security
        security.move_stores(node.number)
        self._by_file(node)
        files = security.nodes[node.number]
        stores = {"ssl.keystore.location": files.key_store, "ssl.truststore.location": files.trust_store}
        listeners = (security.client_listener, security.inter_broker_listener, CONTROLLER)
        entries = [
            ConfigEntry(
                f"listener.name.{listener.lower()}.{setting}",
                str(path),
                incremental_operation=AlterConfigOpType.SET,
            )
            for listener in listeners
            for setting, path in stores.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, str(node.number), incremental_configs=entries)
        properties = {"bootstrap.servers": self.world.cluster.bootstrap, **security.client(ADMIN)}
        admin = AdminClient({**properties, "log_level": 0})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(ROTATION_TIMEOUT_S)

    def _differences(self, node: ClusterNode, step: Step) -> Iterator[str]:
        """What new connections to the node's listeners see that differs from this step."""
        place, serial = node.place, self.security.nodes[node.number].serial
        for port in (place.client_port, place.broker_port, place.controller_port):
            for ca in self.cas:
                context = probe_context(ca, self.cas, self.security.folder)
                found = connect(place.host, port, context)
                expected = serial if ca in step.trusted else None
                if found != expected:
                    yield f"port {port}: {found} instead of {expected} for a client of {ca.name}"

    # Clients.

    def _renew_clients(self) -> str:
        began, clients = time.monotonic(), self.world.clients
        for name in sorted(self.security.clients):
            self.security.write_client(name)
        for thread in (*clients.senders, clients.reader, *clients.chain.threads):
            thread.renewal.request()
        for worker in clients.chain.workers:
            # The supervisor starts it again.
            if not worker.end():
                clients.ledger.fail(f"worker {worker.number} did not stop on SIGTERM:\n{worker.log_tail()}")
        clients.chain.wait_for_output(clients.chain.output_reader.records_read + 1)
        return f"in {time.monotonic() - began:.1f} s"

    def _verify_stable(self, data: Path, offset: int, step: Step) -> None:
        """No broker may be fenced, and no controller elected."""
        changes = changes_since(data, offset)
        if changes.fencings:
            self.world.clients.ledger.fail(f"{step.name}: brokers were fenced: {changes.fencings}")
        if len(changes.quorum_epochs) > 1:
            self.world.clients.ledger.fail(f"{step.name}: controllers were elected")
        self.world.progress(
            f"{step.name}: {len(changes.fencings)} fencings, {changes.elections} elections, "
            f"{changes.in_sync_changes} changes of ISRs"
        )


def probe_context(
    issuer: CertificateAuthority, trusted: tuple[CertificateAuthority, ...], folder: Path
) -> ssl.SSLContext:
    """A client with a certificate of `issuer` that trusts all CAs."""
    context = ssl.create_default_context(cadata="".join(ca.pem() for ca in trusted))
    context.load_cert_chain(issuer.issue(PROBE, ()).write(folder / "probe.pem"))
    return context


def connect(host: str, port: int, context: ssl.SSLContext) -> int | str | None:
    """The serial number of the certificate that is presented; None if that of the client is not trusted."""
    try:
        with (
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname=host) as secured,
        ):
            serial = served_serial(secured)
            # With TLS 1.3 a client learns by the first response whether its certificate was accepted.
            secured.sendall(API_VERSIONS_REQUEST)
            return serial if secured.recv(8) else "a closed connection"
    except ssl.SSLError as error:
        return None if "unknown ca" in str(error) else str(error)
    except OSError as error:
        return str(error)


def rotation(folder: Path, seed: int, progress: Progress) -> ClusterOutcome:
    """Rotate all certificates of a new cluster under load."""

    def operate(running: Operations) -> None:
        Rotation(running).run()

    return under_load(folder, seed, progress, False, operate, is_secured=True)
