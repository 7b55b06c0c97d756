"""Members of all makes join, leave and die under load, and then come to rest."""

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
from tools.mixed.watch import Watch

PARTITIONS = 12
RECORDS_PER_S = 600
REST_TIMEOUT_S = 90.0

SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
"""A broker for this: one that notices a death in seconds."""


@dataclass(slots=True)
class Told:
    """How it went."""

    faults: list[str]
    figures: dict[str, object]


@dataclass(slots=True)
class Story:
    """One group on one broker."""

    port: int
    makes: dict[str, Command]
    scratch: Path
    at_most: dict[str, int]
    """How many members of each make may be there at once."""
    seed: int
    say: Callable[[str], None] = print
    ledger: Ledger = field(default_factory=Ledger)
    members: dict[str, list[Running]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"joined": 0, "left": 0, "killed": 0})
    produced: int = 0

    def tell(self, seconds: float) -> Told:
        """Let members come and go for so long, let them rest, and judge."""
        group = Group(f"127.0.0.1:{self.port}", f"mixed-{self.seed}", f"mixed-{self.seed}")
        admin = AdminClient({"bootstrap.servers": group.bootstrap})
        admin.create_topics([NewTopic(group.topic, PARTITIONS, 1)])[group.topic].result(30)
        stopping = threading.Event()
        load = threading.Thread(target=self._produce, args=(group, stopping))
        load.start()
        try:
            with Watch(self.port, group.name) as watch:
                self._churn(group, seconds)
                stopping.set()
                load.join()
                faults, rest_s = self._rest(watch)
                found = self.ledger.findings()
        finally:
            stopping.set()
            for running in [member for members in self.members.values() for member in members]:
                running.kill()
        figures: dict[str, object] = {
            **self.counts,
            "makes": sorted(self.makes),
            "records produced": self.produced,
            "records read": found.records,
            "read again after a death": found.read_again,
            "partitions moved": found.moves,
            "commits": found.commits,
            "commits refused": found.commits_failed,
            "group epochs": watch.seen.epoch,
            "looks at the group": watch.seen.looks,
            "at rest after, s": round(rest_s, 1),
        }
        return Told([*faults, *found.faults, *watch.seen.faults], figures)

    def _produce(self, group: Group, stopping: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": group.bootstrap, "linger.ms": 5})
        while not stopping.wait(0.05):
            for _ in range(int(RECORDS_PER_S * 0.05)):
                producer.produce(group.topic, b"x" * 50, partition=self.produced % PARTITIONS)
                self.produced += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    def _churn(self, group: Group, seconds: float) -> None:
        chance = random.Random(self.seed)
        for make in self.makes:
            self._join(group, make)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.5, 3.0))
            make = chance.choice(sorted(self.makes))
            there = self.members[make]
            if not there or (len(there) < self.at_most[make] and chance.random() < 0.6):
                self._join(group, make)
            else:
                running = there.pop(chance.randrange(len(there)))
                self._part(running, is_kill=self.counts["killed"] <= self.counts["left"])
        for make in self.makes:
            if not self.members[make]:
                self._join(group, make)

    def _join(self, group: Group, make: str) -> None:
        self.counts["joined"] += 1
        name = f"{make}-{self.counts['joined']}"
        log = self.scratch / f"{name}.log"
        self.members.setdefault(make, []).append(Running(name, self.makes[make](group), self.ledger, log))
        self.say(f"  {name} joins")

    def _part(self, running: Running, is_kill: bool) -> None:
        self.say(f"  {running.name} {'is killed' if is_kill else 'leaves'}")
        if is_kill:
            self.counts["killed"] += 1
            running.kill()
        else:
            self.counts["left"] += 1
            running.leave()

    def _rest(self, watch: Watch) -> tuple[list[str], float]:
        """Wait until every partition has its owner and everything is read; what is missing otherwise."""
        began = time.monotonic()
        everywhere = list(range(PARTITIONS))
        names = {member.name for members in self.members.values() for member in members}
        wanted = {
            partition: (self.produced - partition + PARTITIONS - 1) // PARTITIONS for partition in everywhere
        }
        while True:
            assigned = watch.owners() or {}
            owned = {member: places for member, places in self.ledger.owned().items() if places}
            is_at_rest = (
                len(assigned) == len(names)
                and set(owned) <= names
                and sorted(p for places in assigned.values() for p in places) == everywhere
                and sorted(places for places in assigned.values() if places) == sorted(owned.values())
                and self.ledger.read_until() == wanted
                and watch.seen.committed == wanted
            )
            took_s = time.monotonic() - began
            if is_at_rest:
                return [], took_s
            if took_s > REST_TIMEOUT_S:
                return [
                    f"no rest: the broker says {assigned}, the members say {owned}, of {sorted(names)};"
                    f" read {self.ledger.read_until()}, committed {watch.seen.committed} of {wanted}"
                ], took_s
            time.sleep(0.2)
