"""What the suites are run against: one broker, or a cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.cluster.local import local_cluster
from tools.cluster.nodes import THREE_REPLICAS
from tools.conformance.result import SuiteResult
from tools.conformance.secured import ADMIN, Security, secured

REPLICAS_MAX = 3
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a cluster, the ids of its brokers, and how clients connect to secured ones."""

    bootstrap: str
    brokers: tuple[int, ...] = (1,)
    security: Security | None = None

    def properties(self, user: str = ADMIN, prefix: str = "") -> dict[str, str]:
        """What Kafka's Java clients need to connect as a user; the names with a prefix."""
        given = {} if self.security is None else self.security.properties(user)
        return {f"{prefix}{name}": value for name, value in given.items()}

    def librdkafka(self) -> dict[str, str]:
        """The configuration of a client that may do everything."""
        given = {} if self.security is None else self.security.librdkafka()
        return {"bootstrap.servers": self.bootstrap, **given}

    @property
    def replication_factor(self) -> int:
        """Of all topics."""
        return min(REPLICAS_MAX, len(self.brokers))

    def label(self, result: SuiteResult) -> SuiteResult:
        """The result, named after the cluster if it is secured or has more than one node."""
        if self.security is not None:
            result.suite += ", secured"
            result.description += "; against a broker with an authorizer"
        if len(self.brokers) > 1:
            nodes = f"{NUMBERS.get(len(self.brokers), len(self.brokers))} nodes"
            result.suite += f", {nodes}"
            result.description += f"; against {nodes}, with {self.replication_factor} replicas of all topics"
        return result


@contextmanager
def started(
    folder: Path, settings: Mapping[str, str], nodes: int, *, is_secured: bool = False
) -> Iterator[Target]:
    """A new broker or cluster."""
    if is_secured:
        with secured(folder, settings) as security:
            yield Target(security.bootstrap("SASL_SSL"), security=security)
        return
    if nodes == 1:
        with BrokerProcess(folder, settings) as broker:
            yield Target(broker.bootstrap)
        return
    numbers = tuple(range(1, nodes + 1))
    replicated = THREE_REPLICAS if nodes >= REPLICAS_MAX else {}
    with local_cluster(folder, settings={**replicated, **settings}, numbers=numbers) as cluster:
        yield Target(cluster.bootstrap, numbers)
