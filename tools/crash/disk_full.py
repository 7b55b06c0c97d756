"""A full disk: produce is refused, reads continue, and writing resumes when there is space."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.broker_process import BrokerProcess
from tools.crash.ledger import Ledger
from tools.crash.load import Sender, read_log
from tools.crash.rounds import (
    TIMEOUT_S,
    Outcome,
    Progress,
    create_topics,
    no_progress,
    verify_logs,
    wait_for_progress,
)
from tools.crash.volumes import tmpfs

VOLUME_BYTES = 40 * 1024 * 1024
# Both fail soon: one at once with the broker's error code, one after its retries. That one must outlast a
# restart of the broker: librdkafka sends what is in flight again, in a new epoch, when a record times out.
SENDERS: list[dict[str, Any]] = [
    {"enable.idempotence": True, "message.timeout.ms": 8000},
    {"retries": 0, "message.timeout.ms": 4000},
]


def disk_full(folder: Path, progress: Progress = no_progress, *, volume_bytes: int = VOLUME_BYTES) -> Outcome:
    with tmpfs(folder / "small", volume_bytes) as volume:
        broker = BrokerProcess(volume / "data", log_path=folder / "broker.log")
        try:
            return _fill_and_free(broker, volume, volume_bytes // 2, progress)
        finally:
            broker.kill()


def _fill_and_free(broker: BrokerProcess, volume: Path, ballast_bytes: int, progress: Progress) -> Outcome:
    ledger = Ledger(idempotent=frozenset([0]))
    broker.start()
    partitions = create_topics(broker.bootstrap)
    ballast = volume / "ballast"
    ballast.write_bytes(bytes(ballast_bytes))
    senders = [Sender(n, broker.bootstrap, partitions, ledger, config) for n, config in enumerate(SENDERS)]
    for sender in senders:
        sender.start()
    wait_for_progress(senders, ledger)
    wait_for_refusals(senders, ledger)
    progress(f"full after {ledger.acknowledged_count} acknowledged records")
    for partition in partitions:
        ledger.verify(partition, read_log(broker.bootstrap, partition, ledger))
    progress("all of them readable while the disk is full")
    ballast.unlink()
    wait_for_progress(senders, ledger)
    progress("writing resumed once there was space")
    fill_up(ballast)
    wait_for_refusals(senders, ledger)
    broker.kill()
    broker.start()
    for partition in partitions:
        ledger.verify(partition, read_log(broker.bootstrap, partition, ledger))
    progress("a broker killed on the full disk starts on it and is readable")
    ballast.unlink()
    wait_for_progress(senders, ledger)
    progress("and accepts writes once there is space")
    for sender in senders:
        sender.end()
    verify_logs(broker, partitions, ledger)
    return Outcome(1, ledger.acknowledged_count, 0, ledger.violations)


def fill_up(path: Path) -> None:
    """Use all the space that is left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))


def wait_for_refusals(senders: list[Sender], ledger: Ledger) -> None:
    """Wait until every sender has failed, at least one of them with the broker's error code."""
    for sender in senders:
        sender.failed = 0
        sender.failure_codes.clear()
    deadline = time.monotonic() + TIMEOUT_S
    while not all(sender.failed for sender in senders):
        if time.monotonic() > deadline:
            ledger.fail("the disk never filled, or no error was reported")
            return
        time.sleep(0.05)
    codes = {code for sender in senders for code in sender.failure_codes}
    if "KAFKA_STORAGE_ERROR" not in codes:
        ledger.fail(f"a full disk was answered with {sorted(codes)}, not KAFKA_STORAGE_ERROR")
