"""What TLS, SASL and ACLs cost: the same certificate, suite, mechanism and ACLs for both brokers.

    TLS      small requests, and 1 MB batches in and out, over TLS 1.3 with AES-128-GCM
    SASL     connections over TLS that authenticate with SCRAM-SHA-512 and are closed again
    ACLs     small produce requests of a user: without an authorizer; with few and with very many ACLs,
             alternately; with very many, some of which change

The load generator neither verifies certificates nor resumes sessions, and keeps the salted password, as
clients do: most of what a connection costs is the broker's.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tools.bench import loadgen
from tools.bench.measures import Bench, Numbers, Options, large_batches, small_requests
from tools.bench.systems import Kafka, Runnel, Running, System
from tools.bench.table import ACL_CHANGES_PER_S, ACL_COUNTS
from tools.bench.warm_up import WarmUpPlan
from tools.broker_process import free_port
from tools.certificates import CaFolder
from tools.settings import SCRAM_LOGIN, STANDARD_AUTHORIZER, pem_stores, plain_users

USER, PASSWORD = "bench", "bench-secret"
SCRAM, SCRAM_ITERATIONS = "SCRAM-SHA-512", 4096
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
PROCESSES = 8
"""Connections that are opened at the same time."""
TOPIC, PARTITIONS = "guarded", 16
ACLS_PER_REQUEST = 1000
AUTHORIZER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Topics and ACLs are created without TLS and SASL; the user that is measured is authenticated.
    "super.users": "User:ANONYMOUS",
}


@dataclass(slots=True)
class Secured:
    """One broker, by each way of connecting to it."""

    name: str
    tls: Bench
    sasl: Bench
    user: Bench
    """In clear text, as a user."""

    @property
    def benches(self) -> tuple[Bench, ...]:
        return self.tls, self.sasl, self.user


Measure = Callable[[Secured], Numbers]
Measured = Sequence[tuple[Secured, Measure]]
"""What is measured of which broker, alternately."""


@dataclass(slots=True)
class Comparison:
    """What was measured so far, by the name of the system."""

    rounds: dict[str, list[Numbers]]
    warm_ups: dict[str, dict[str, str]]

    def add(self, measured: Measured, label: str, plan: WarmUpPlan) -> None:
        """Warm each broker, then measure them alternately."""
        for broker, measure in measured:
            self._warm_up(broker, measure, plan)
        rounds = len(self.rounds[measured[0][0].name])
        for number in range(rounds):
            for broker, measure in measured if number % 2 == 0 else measured[::-1]:
                os.sync()
                self.rounds[broker.name][number] |= measure(broker)
            print(f"  {label}, round {number + 1} of {rounds}", flush=True)

    def _warm_up(self, broker: Secured, measure: Measure, plan: WarmUpPlan) -> None:
        for bench in broker.benches:
            bench.warm_up = plan
            bench.warm_ups = {}
        measure(broker)
        for way, bench in zip(("tls", "sasl", "user"), broker.benches, strict=True):
            for workload, done in bench.warm_ups.items():
                print(f"{broker.name} {way} {workload}: {done.describe()}", flush=True)
                self.warm_ups[broker.name][f"{way}_{workload}"] = done.describe()
            bench.warm_up = None


def compare_security(
    folder: Path, program: Path, rounds: int, seconds: float, plan: WarmUpPlan
) -> tuple[dict[str, list[Numbers]], dict[str, dict[str, str]]]:
    """All rounds on two brokers without an authorizer, then on two with one; how each was warmed."""
    systems: list[System] = [Runnel(), Kafka()]
    compared = Comparison(
        {system.name: [{} for _ in range(rounds)] for system in systems},
        {system.name: {} for system in systems},
    )
    with _brokers(systems, folder / "open", {}, program, seconds) as brokers:
        for broker in brokers:
            _add_user(broker.sasl)
            broker.user.create(TOPIC, PARTITIONS)
        for measure, label in (
            (_tls, "TLS"),
            (_connections, "SASL_SSL connections"),
            (partial(_produce_as_user, name="acls_none"), "no authorizer"),
        ):
            compared.add([(broker, measure) for broker in brokers], label, plan)
    compare_acls(compared, systems, folder, program, seconds, plan)
    return compared.rounds, compared.warm_ups


def compare_acls(
    compared: Comparison, systems: list[System], folder: Path, program: Path, seconds: float, plan: WarmUpPlan
) -> None:
    """Brokers with few and with many ACLs, alternately; then those with many, while one ACL changes."""
    with ExitStack() as stack:
        guarded = {
            count: stack.enter_context(
                _brokers(systems, folder / f"guarded-{count}", AUTHORIZER, program, seconds)
            )
            for count in ACL_COUNTS
        }
        for count, brokers in guarded.items():
            for broker in brokers:
                broker.user.create(TOPIC, PARTITIONS)
                _add_acls(broker.user, count)
        produced: Measured = [
            (brokers[index], partial(_produce_as_user, name=f"acls_{count}"))
            for index in range(len(systems))
            for count, brokers in guarded.items()
        ]
        compared.add(produced, " and ".join(f"{count:,}" for count in ACL_COUNTS) + " ACLs", plan)
        fewest, *_, most = ACL_COUNTS
        for numbers in (numbers for rounds in compared.rounds.values() for numbers in rounds):
            few, many = (numbers[f"acls_{count}_produce_cpu_us"] for count in (fewest, most))
            numbers["acls_cpu_ratio"] = many / few
        changing: Measured = [(broker, _produce_while_acls_change) for broker in guarded[most]]
        compared.add(changing, f"{most:,} ACLs that change", plan)


@contextmanager
def _brokers(
    systems: list[System], folder: Path, settings: Mapping[str, str], program: Path, seconds: float
) -> Iterator[list[Secured]]:
    folder.mkdir(parents=True)
    node = CaFolder(folder).issue("node", "127.0.0.1")
    brokers: list[Secured] = []
    with ExitStack() as stack:
        for system in systems:
            ports = {protocol: free_port() for protocol in PROTOCOLS}
            listeners = tuple(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items())
            running = system.launch(folder / system.name, {**_settings(node.pem), **settings}, listeners)
            stack.callback(running.stop)
            brokers.append(_secured(system.name, running, ports, program, seconds))
        yield brokers


def _settings(key_store: Path) -> dict[str, str]:
    """For both brokers."""
    protocols = {name: name for name in ("PLAINTEXT", *PROTOCOLS)} | {"CONTROLLER": "PLAINTEXT"}
    return {
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        **pem_stores(key_store),
        "ssl.enabled.protocols": "TLSv1.3",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": SCRAM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN};",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users({USER: PASSWORD}),
    }


def _secured(name: str, running: Running, ports: Mapping[str, int], program: Path, seconds: float) -> Secured:
    def bench(protocol: str, **options: object) -> Bench:
        connection: Options = {"port": ports[protocol], **options}
        if protocol.endswith("SSL"):
            connection["tls"] = loadgen.libssl()
        return Bench(running, program, seconds, 1.0, None, connection=connection)

    return Secured(
        name,
        bench("SSL"),
        bench("SASL_SSL", mechanism=SCRAM, user=USER, password=PASSWORD),
        bench("SASL_PLAINTEXT", mechanism="PLAIN", user=USER, password=PASSWORD),
    )


def _tls(broker: Secured) -> Numbers:
    numbers = small_requests(broker.tls) | large_batches(broker.tls)
    return {f"tls_{key}": value for key, value in numbers.items()}


def _connections(broker: Secured) -> Numbers:
    done, cpu_s = broker.sasl.load("connections", "connect", processes=PROCESSES)
    return {
        "sasl_ssl_connections_per_s": done.requests_per_s,
        "sasl_ssl_connection_cpu_us": cpu_s / done.requests * 1e6,
    }


def _produce_as_user(broker: Secured, name: str) -> Numbers:
    options: Options = {"connections": 16, "in_flight": 8, "topic": TOPIC, "partitions": PARTITIONS}
    produced, cpu_s = broker.user.load(name, "produce", **options, record_bytes=100, acks=1)
    return {
        f"{name}_produce_rps": produced.requests_per_s,
        f"{name}_produce_cpu_us": cpu_s / produced.requests * 1e6,
    }


def _produce_while_acls_change(broker: Secured) -> Numbers:
    with _changing_acls(broker.user):
        return _produce_as_user(broker, name="acls_changing")


@contextmanager
def _changing_acls(bench: Bench) -> Iterator[None]:
    """Create and delete an ACL of another user over and over."""
    ended, changes = Event(), 0
    failures: list[KafkaException] = []
    acl = _acl(ACL_COUNTS[-1])
    wanted = AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )

    def change() -> None:
        nonlocal changes
        admin = _admin(bench)
        while not ended.wait(1 / ACL_CHANGES_PER_S):
            try:
                if changes % 2 == 0:
                    admin.create_acls([acl])[acl].result(60)
                else:
                    admin.delete_acls([wanted])[wanted].result(60)
            except KafkaException as failure:
                failures.append(failure)
                return
            changes += 1

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]
    assert changes > 1, f"{changes} ACLs were changed"


def _add_user(bench: Bench) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, SCRAM_ITERATIONS)
    change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    admin = _admin(bench)
    admin.alter_user_scram_credentials([change])[USER].result(60)


def _add_acls(bench: Bench, count: int) -> None:
    """So many ACLs: the first permits the user to write, others concern other users and topics."""
    admin = _admin(bench)
    for begin in range(0, count, ACLS_PER_REQUEST):
        bindings = [_acl(number) for number in range(begin, min(begin + ACLS_PER_REQUEST, count))]
        for created in admin.create_acls(bindings, request_timeout=120).values():
            created.result(120)


def _acl(number: int) -> AclBinding:
    principal, topic = (f"User:{number % 997}", f"topic-{number}") if number else (f"User:{USER}", TOPIC)
    pattern = ResourcePatternType.PREFIXED if number % 10 == 1 else ResourcePatternType.LITERAL
    allowed = AclOperation.WRITE, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", *allowed)


def _admin(bench: Bench) -> AdminClient:
    return AdminClient({"bootstrap.servers": bench.bootstrap, "log_level": 0})
