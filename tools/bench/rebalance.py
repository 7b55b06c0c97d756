"""How long a group needs when a member joins and when one is killed, in both protocols."""

import time
from collections.abc import Callable
from pathlib import Path

from tools.bench.measures import Bench, Numbers
from tools.bench.systems import System
from tools.mixed.ledger import Ledger
from tools.mixed.members import Command, Group, Running, librdkafka

PARTITIONS = 12
MEMBERS = 3
TIMEOUT_S = 90.0
SESSION_MS, HEARTBEAT_MS = 6000, 500

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
"""The same for both brokers: members of the classic protocol bring such times with them."""


def rebalance(system: System, folder: Path) -> Numbers:
    """On a broker of its own, which notices deaths early."""
    running = system.launch(folder, SETTINGS)
    bench = Bench(running, Path(), 0.0, 1.0, None)
    times = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    classic = {"partition_assignment_strategy": "cooperative-sticky", **times}
    kinds = {
        "consumer": librdkafka(folder),
        "classic": librdkafka(folder, group_protocol="classic", **classic),
    }
    try:
        numbers: Numbers = {}
        for kind, command in kinds.items():
            join_s, death_s = _measure(bench, folder, kind, command)
            numbers |= {f"join_{kind}_s": join_s, f"death_{kind}_s": death_s}
        return numbers
    finally:
        running.stop()


def _measure(bench: Bench, folder: Path, kind: str, command: Command) -> tuple[float, float]:
    """Seconds until everything has moved: after one more joined, and after it was killed."""
    bench.create(f"rebalance-{kind}", PARTITIONS)
    group = Group(bench.bootstrap, f"rebalance-{kind}", f"rebalance-{kind}")
    ledger = Ledger()
    members: list[Running] = []

    def join() -> None:
        name = f"{kind}-{len(members)}"
        members.append(Running(name, command(group), ledger, folder / f"{name}.log"))

    def is_even() -> bool:
        shares = [len(partitions) for partitions in ledger.owned().values() if partitions]
        return len(shares) == len(members) and set(shares) == {PARTITIONS // len(members)}

    try:
        for _ in range(MEMBERS):
            join()
        _wait(is_even)
        join()
        _wait(is_even)
        join_ms = ledger.last_ms("partitions_assigned") - ledger.last_ms("startup_complete")
        members.pop().kill()
        _wait(is_even)
        death_ms = ledger.last_ms("partitions_assigned") - ledger.last_ms("killed")
    finally:
        for member in members:
            member.kill()
    return join_ms / 1000, death_ms / 1000


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the group did not come to rest")
        time.sleep(0.1)
