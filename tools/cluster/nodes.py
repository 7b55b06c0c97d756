"""Nodes of a cluster as processes, each configured by a Kafka `server.properties`."""

import base64
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.cluster.security import NO_SECURITY, OBSERVER, Security
from tools.kafka.commands import java, tool
from tools.kafka.node import JVM_FLAGS
from tools.processes import children
from tools.settings import write_properties

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
BROKER_PORT = 9094
START_TIMEOUT_S = 120.0
RUNNEL = str(Path(sys.executable).with_name("runnel"))
THREE_REPLICAS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node runs: its addresses, its data, and what to put before its command."""

    node: int
    host: str
    folder: Path
    """For properties and output; the data is in `data`, which may be a volume of its own."""
    data: Path
    inside: list[str] = field(default_factory=list)
    client_port: int = CLIENT_PORT
    controller_port: int = CONTROLLER_PORT
    broker_port: int = BROKER_PORT
    """Of a listener for other brokers, if they do not use that of clients."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What all nodes of a cluster share."""

    voters: Mapping[int, str]
    """Node id → address of its controller listener, as host:port."""
    settings: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""
    controllers_only: frozenset[int] = frozenset()
    """Voters that are no brokers."""
    security: Security = NO_SECURITY

    def roles(self, node: int) -> list[str]:
        """The roles of a node."""
        broker = [] if node in self.controllers_only else ["broker"]
        return [*broker, "controller"] if node in self.voters else broker

    def properties(self, place: Place) -> dict[str, str]:
        """The server.properties of one node; a node that is no voter is a broker only."""
        security = self.security
        ports = {
            security.inter_broker_listener: place.broker_port,
            security.client_listener: place.client_port,
        }
        listeners = {
            "broker": ",".join(f"{name}://{place.host}:{port}" for name, port in ports.items()),
            "controller": f"CONTROLLER://{place.host}:{place.controller_port}",
        }
        roles = self.roles(place.node)
        protocols = [f"{name}:{security.protocol}" for name in ("CONTROLLER", *ports)]
        advertised = {"advertised.listeners": listeners["broker"]} if "broker" in roles else {}
        return {
            "process.roles": ",".join(roles),
            "node.id": str(place.node),
            "controller.quorum.voters": ",".join(f"{node}@{host}" for node, host in self.voters.items()),
            "listeners": ",".join(listeners[role] for role in roles),
            **advertised,
            "listener.security.protocol.map": ",".join(protocols),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": security.inter_broker_listener,
            "log.dirs": str(place.data),
            **security.settings(place.node, place.host),
            **self.settings,
        }


def new_cluster_id() -> str:
    """A cluster id; Kafka refuses those that begin with a dash, which its tools take for an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


class ClusterNode(BrokerProcess):
    """One node of a cluster."""

    def __init__(self, place: Place, blueprint: Blueprint) -> None:
        super().__init__(place.data, log_path=place.folder / "node.log")
        self.place = place
        self.blueprint = blueprint
        self.is_broker = "broker" in blueprint.roles(place.node)
        self.host = place.host
        self.port = place.client_port if self.is_broker else place.controller_port

    @property
    def number(self) -> int:
        return self.place.node

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def properties_path(self) -> Path:
        return self.place.folder / "server.properties"

    def tls(self) -> ssl.SSLContext | None:
        return self.blueprint.security.context(OBSERVER)

    def command(self) -> list[str]:
        self.place.folder.mkdir(parents=True, exist_ok=True)
        write_properties(self.properties_path, self.blueprint.properties(self.place))
        return [*self.place.inside, *self.program()]

    @abstractmethod
    def program(self) -> list[str]:
        """The command that runs a node with its properties."""


class RunnelNode(ClusterNode):
    """`runnel serve` with a `server.properties`; with several workers, their supervisor."""

    workers = 1

    def program(self) -> list[str]:
        serve = [RUNNEL, "serve", "--config", str(self.properties_path), "--http", "off"]
        return [*serve, "--workers", str(self.workers)] if self.workers > 1 else serve

    def worker_data(self, number: int) -> Path:
        """The data directory of a further worker."""
        return self.data_dir.with_name(f"{self.data_dir.name}-worker-{number}")

    def kill(self) -> None:
        """kill -9, of workers too."""
        workers = [] if self.process is None or self.workers == 1 else children(self.process.pid)
        super().kill()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            time.sleep(0.01)


class KafkaNode(ClusterNode):
    """Apache Kafka with the JVM flags of its own start script; an empty folder is formatted first."""

    flags: tuple[str, ...] = JVM_FLAGS

    def program(self) -> list[str]:
        if not (self.place.data / "meta.properties").exists():
            self._format()
        return java("kafka.Kafka", self.properties_path, flags=self.flags)

    def _format(self) -> None:
        command = tool("kafka-storage", "format", "-t", self.blueprint.cluster_id, "-c", self.properties_path)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")


class SmallKafkaNode(KafkaNode):
    """Apache Kafka with less memory, for several nodes on one machine."""

    flags = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass(slots=True)
class NodeCluster:
    """The nodes of one cluster, started and stopped together."""

    nodes: dict[int, ClusterNode]
    security: Security = NO_SECURITY

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values() if node.is_broker)

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running]

    def start(self, nodes: Iterable[ClusterNode] | None = None) -> float:
        """Start all nodes, or some, at once; the seconds until each of them answers a client."""
        chosen = list(self.nodes.values() if nodes is None else nodes)
        began = time.monotonic()
        for node in chosen:
            node.launch()
        for node in chosen:
            node.wait_until_answering(START_TIMEOUT_S)
        return time.monotonic() - began

    def stop(self) -> int:
        """Stop all nodes with SIGTERM, brokers first; 0 if each of them ended with 0.

        A broker of Kafka waits five minutes for a controller that allows it to stop.
        """
        codes: list[int] = []
        for is_broker in (True, False):
            nodes = [node for node in self.running if node.is_broker is is_broker]
            with ThreadPoolExecutor(max(1, len(nodes))) as pool:
                codes += pool.map(lambda node: node.stop(START_TIMEOUT_S), nodes)
        # A JVM reports the signal that ended it.
        return next((code for code in codes if code not in (0, 143)), 0)

    def kill(self) -> None:
        """kill -9 of all nodes."""
        for node in self.nodes.values():
            node.kill()
