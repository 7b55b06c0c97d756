"""Members of several clients join, leave and are killed under load, until the group is stable again."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.mixed.ledger import Ledger
from tools.mixed.members import Command, Group, Running
from tools.mixed.monitor import GroupMonitor

PARTITIONS = 12
RECORDS_PER_S = 600
STABLE_TIMEOUT_S = 90.0

SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
"""Of a broker that detects a failed member within seconds."""


@dataclass(slots=True)
class ChurnResult:
    """What was wrong, and figures."""

    faults: list[str]
    figures: dict[str, object]


@dataclass(slots=True)
class Churn:
    """One group on one broker."""

    port: int
    clients: dict[str, Command]
    scratch: Path
    members_max: dict[str, int]
    """At most this many members of each client at once."""
    seed: int
    progress: Callable[[str], None] = print
    ledger: Ledger = field(default_factory=Ledger)
    members: dict[str, list[Running]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"joined": 0, "left": 0, "killed": 0})
    produced: int = 0

    def run(self, seconds: float) -> ChurnResult:
        """Change the membership for so long, wait until the group is stable, and verify."""
        group = Group(f"127.0.0.1:{self.port}", f"mixed-{self.seed}", f"mixed-{self.seed}")
        admin = AdminClient({"bootstrap.servers": group.bootstrap})
        admin.create_topics([NewTopic(group.topic, PARTITIONS, 1)])[group.topic].result(30)
        stopping = threading.Event()
        load = threading.Thread(target=self._produce, args=(group, stopping))
        load.start()
        try:
            with GroupMonitor(self.port, group.name) as monitor:
                self._churn(group, seconds)
                stopping.set()
                load.join()
                faults, stable_s = self._wait_until_stable(monitor)
                found = self.ledger.findings()
        finally:
            stopping.set()
            for running in [member for members in self.members.values() for member in members]:
                running.kill()
        figures: dict[str, object] = {
            **self.counts,
            "clients": sorted(self.clients),
            "records produced": self.produced,
            "records read": found.records,
            "read again after a kill": found.read_again,
            "partitions moved": found.moves,
            "commits": found.commits,
            "commits refused": found.commits_failed,
            "group epochs": monitor.history.epoch,
            "observations of the group": monitor.history.observations,
            "stable after, s": round(stable_s, 1),
        }
        return ChurnResult([*faults, *found.faults, *monitor.history.faults], figures)

    def _produce(self, group: Group, stopping: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": group.bootstrap, "linger.ms": 5})
        while not stopping.wait(0.05):
            for _ in range(int(RECORDS_PER_S * 0.05)):
                producer.produce(group.topic, b"x" * 50, partition=self.produced % PARTITIONS)
                self.produced += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    def _churn(self, group: Group, seconds: float) -> None:
        rng = random.Random(self.seed)
        for client in self.clients:
            self._join(group, client)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(rng.uniform(0.5, 3.0))
            client = rng.choice(sorted(self.clients))
            running_members = self.members[client]
            if not running_members or (
                len(running_members) < self.members_max[client] and rng.random() < 0.6
            ):
                self._join(group, client)
            else:
                running = running_members.pop(rng.randrange(len(running_members)))
                self._remove(running, is_kill=self.counts["killed"] <= self.counts["left"])
        for client in self.clients:
            if not self.members[client]:
                self._join(group, client)

    def _join(self, group: Group, client: str) -> None:
        self.counts["joined"] += 1
        name = f"{client}-{self.counts['joined']}"
        log = self.scratch / f"{name}.log"
        self.members.setdefault(client, []).append(
            Running(name, self.clients[client](group), self.ledger, log)
        )
        self.progress(f"  {name} joins")

    def _remove(self, running: Running, is_kill: bool) -> None:
        self.progress(f"  {running.name} {'is killed' if is_kill else 'leaves'}")
        if is_kill:
            self.counts["killed"] += 1
            running.kill()
        else:
            self.counts["left"] += 1
            running.leave()

    def _wait_until_stable(self, monitor: GroupMonitor) -> tuple[list[str], float]:
        """Wait until every partition has an owner and everything is read; what is missing otherwise."""
        began = time.monotonic()
        everywhere = list(range(PARTITIONS))
        names = {member.name for members in self.members.values() for member in members}
        wanted = {
            partition: (self.produced - partition + PARTITIONS - 1) // PARTITIONS for partition in everywhere
        }
        while True:
            assigned = monitor.owners() or {}
            owned = {member: partitions for member, partitions in self.ledger.owned().items() if partitions}
            is_stable = (
                len(assigned) == len(names)
                and set(owned) <= names
                and sorted(p for partitions in assigned.values() for p in partitions) == everywhere
                and sorted(partitions for partitions in assigned.values() if partitions)
                == sorted(owned.values())
                and self.ledger.read_until() == wanted
                and monitor.history.committed == wanted
            )
            took_s = time.monotonic() - began
            if is_stable:
                return [], took_s
            if took_s > STABLE_TIMEOUT_S:
                return [
                    f"not stable: assigned {assigned}, owned {owned}, of {sorted(names)};"
                    f" read {self.ledger.read_until()}, committed {monitor.history.committed} of {wanted}"
                ], took_s
            time.sleep(0.2)
