"""A broker under load, crashed again and again, and the reckoning at the end."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import BrokerProcess
from tools.crash.ledger import Ledger, Place
from tools.crash.load import Reader, Sender, read_log

PARTITIONS = 3
PATIENCE_S = 60.0
# Group commit, and segments small enough that a kill can meet a roll.
KEPT = {"flush.policy": "commit", "segment.bytes": str(1024 * 1024)}
TOPICS = {"kept": KEPT, "kept-squeezed": {**KEPT, "compression.type": "zstd"}}
# Three that must find their own retries, one that gives up on each lost answer.
SENDERS: list[dict[str, Any]] = [
    {"enable.idempotence": True},
    {"enable.idempotence": True, "compression.type": "lz4"},
    {"enable.idempotence": True, "batch.num.messages": 3},
    {"retries": 0, "message.timeout.ms": 10_000},
]

Crash = Callable[[BrokerProcess, random.Random], None]
Note = Callable[[str], None]


def silent(_: str) -> None:
    """Where notes go that nobody reads."""


@dataclass(slots=True)
class Outcome:
    """How a story ended."""

    rounds: int
    acknowledged: int
    read: int
    violations: list[str] = field(default_factory=list)
    start_seconds: list[float] = field(default_factory=list)


def create_topics(bootstrap: str) -> list[Place]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(PATIENCE_S)
    return [(name, partition) for name in TOPICS for partition in range(PARTITIONS)]


def kill(broker: BrokerProcess, chance: random.Random) -> None:
    """kill -9, and every third time once more in the middle of the recovery."""
    broker.kill()
    if chance.random() < 1 / 3:
        broker.launch()
        time.sleep(chance.uniform(0.02, 0.4))
        broker.kill()


def tell(
    broker: BrokerProcess,
    rounds: int,
    crash: Crash,
    seed: int = 1,
    note: Note = silent,
) -> Outcome:
    """Run the load through `rounds` crashes; the broker is stopped at the end."""
    chance = random.Random(seed)
    ledger = Ledger(idempotent=frozenset(n for n, config in enumerate(SENDERS) if "retries" not in config))
    outcome = Outcome(rounds, 0, 0, ledger.violations)
    broker.start()
    places = create_topics(broker.bootstrap)
    senders = [Sender(n, broker.bootstrap, places, ledger, config) for n, config in enumerate(SENDERS)]
    reader = Reader(broker.bootstrap, places, ledger)
    for thread in (*senders, reader):
        thread.start()
    for number in range(1, rounds + 1):
        wait_for_progress(senders, ledger)
        time.sleep(chance.uniform(0.0, 0.5))
        crash(broker, chance)
        broker.start()
        outcome.start_seconds.append(broker.started_in_s)
        note(f"round {number}/{rounds}: {ledger.acknowledged_count} acknowledged, {reader.shown} read")
        if ledger.violations:
            break
    wait_for_progress(senders, ledger)
    for sender in senders:
        sender.end()
    reader.end()
    settle(broker, places, ledger)
    outcome.acknowledged, outcome.read = ledger.acknowledged_count, reader.shown
    return outcome


def wait_for_progress(senders: list[Sender], ledger: Ledger) -> None:
    """Every sender gets a new acknowledgement, or is stuck."""
    before = [sender.acknowledged for sender in senders]
    deadline = time.monotonic() + PATIENCE_S
    for sender, count in zip(senders, before, strict=True):
        while sender.acknowledged == count:
            if time.monotonic() > deadline or not sender.is_alive():
                ledger.accuse(
                    f"sender {sender.number} is stuck: {count} acknowledged, {sender.failed} failed"
                )
                return
            time.sleep(0.005)


def settle(broker: BrokerProcess, places: list[Place], ledger: Ledger) -> None:
    """Read everything back, before and after one more clean restart."""
    for place in places:
        ledger.settle(place, read_log(broker.bootstrap, place, ledger))
    exit_code = broker.stop()
    if exit_code != 0:
        ledger.accuse(f"a clean stop ended with {exit_code}")
    broker.start()
    for place in places:
        ledger.settle(place, read_log(broker.bootstrap, place, ledger))
    broker.stop()
