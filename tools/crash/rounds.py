"""A broker under load through repeated crashes; at the end every record is verified."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import BrokerProcess
from tools.crash.ledger import Ledger, Partition
from tools.crash.load import Reader, Sender, read_log

PARTITIONS = 3
TIMEOUT_S = 60.0
# Group commit, and segments small enough that a kill can meet a roll.
KEPT = {"flush.policy": "commit", "segment.bytes": str(1024 * 1024)}
TOPICS = {"kept": KEPT, "kept-compressed": {**KEPT, "compression.type": "zstd"}}
# Three with idempotence, one that gives up on each lost response.
SENDERS: list[dict[str, Any]] = [
    {"enable.idempotence": True},
    {"enable.idempotence": True, "compression.type": "lz4"},
    {"enable.idempotence": True, "batch.num.messages": 3},
    {"retries": 0, "message.timeout.ms": 10_000},
]

Crash = Callable[[BrokerProcess, random.Random], None]
Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """Reports nothing."""


@dataclass(slots=True)
class Outcome:
    """The result of a number of crashes."""

    rounds: int
    acknowledged: int
    read: int
    violations: list[str] = field(default_factory=list)
    start_seconds: list[float] = field(default_factory=list)


def create_topics(bootstrap: str) -> list[Partition]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)
    return [(name, partition) for name in TOPICS for partition in range(PARTITIONS)]


def kill(broker: BrokerProcess, rng: random.Random) -> None:
    """kill -9, and every third time once more in the middle of the recovery."""
    broker.kill()
    if rng.random() < 1 / 3:
        broker.launch()
        time.sleep(rng.uniform(0.02, 0.4))
        broker.kill()


def run_rounds(
    broker: BrokerProcess,
    rounds: int,
    crash: Crash,
    seed: int = 1,
    progress: Progress = no_progress,
) -> Outcome:
    """Run the load through `rounds` crashes; the broker is stopped at the end."""
    rng = random.Random(seed)
    ledger = Ledger(idempotent=frozenset(n for n, config in enumerate(SENDERS) if "retries" not in config))
    outcome = Outcome(rounds, 0, 0, ledger.violations)
    broker.start()
    partitions = create_topics(broker.bootstrap)
    senders = [Sender(n, broker.bootstrap, partitions, ledger, config) for n, config in enumerate(SENDERS)]
    reader = Reader(broker.bootstrap, partitions, ledger)
    for thread in (*senders, reader):
        thread.start()
    for number in range(1, rounds + 1):
        wait_for_progress(senders, ledger)
        time.sleep(rng.uniform(0.0, 0.5))
        crash(broker, rng)
        broker.start()
        outcome.start_seconds.append(broker.started_in_s)
        progress(
            f"round {number}/{rounds}: {ledger.acknowledged_count} acknowledged, {reader.records_read} read"
        )
        if ledger.violations:
            break
    wait_for_progress(senders, ledger)
    for sender in senders:
        sender.end()
    reader.end()
    verify_logs(broker, partitions, ledger)
    outcome.acknowledged, outcome.read = ledger.acknowledged_count, reader.records_read
    return outcome


def wait_for_progress(senders: list[Sender], ledger: Ledger) -> None:
    """Every sender gets a new acknowledgement, or is stuck."""
    before = [sender.acknowledged for sender in senders]
    deadline = time.monotonic() + TIMEOUT_S
    for sender, count in zip(senders, before, strict=True):
        while sender.acknowledged == count:
            if time.monotonic() > deadline or not sender.is_alive():
                ledger.fail(f"sender {sender.number} is stuck: {count} acknowledged, {sender.failed} failed")
                return
            time.sleep(0.005)


def verify_logs(broker: BrokerProcess, partitions: list[Partition], ledger: Ledger) -> None:
    """Read everything back, before and after one more clean restart."""
    for partition in partitions:
        ledger.verify(partition, read_log(broker.bootstrap, partition, ledger))
    exit_code = broker.stop()
    if exit_code != 0:
        ledger.fail(f"a clean stop ended with {exit_code}")
    broker.start()
    for partition in partitions:
        ledger.verify(partition, read_log(broker.bootstrap, partition, ledger))
    broker.stop()
