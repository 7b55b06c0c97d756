"""A full disk: produce is refused, reads go on, and writing resumes when there is room."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.broker_process import BrokerProcess
from tools.crash.ledger import Ledger
from tools.crash.load import Sender, read_log
from tools.crash.story import PATIENCE_S, Note, Outcome, create_topics, settle, silent, wait_for_progress
from tools.crash.volumes import tmpfs

VOLUME_BYTES = 40 * 1024 * 1024
BALLAST_BYTES = 20 * 1024 * 1024
# Both report a refusal soon: one at once with the broker's own code, one after its retries.
SENDERS: list[dict[str, Any]] = [
    {"enable.idempotence": True, "message.timeout.ms": 4000},
    {"retries": 0, "message.timeout.ms": 4000},
]


def disk_full(folder: Path, note: Note = silent) -> Outcome:
    with tmpfs(folder / "small", VOLUME_BYTES) as volume:
        broker = BrokerProcess(volume / "data", log_path=folder / "broker.log")
        try:
            return _fill_and_free(broker, volume, note)
        finally:
            broker.kill()


def _fill_and_free(broker: BrokerProcess, volume: Path, note: Note) -> Outcome:
    ledger = Ledger(idempotent=frozenset([0]))
    broker.start()
    places = create_topics(broker.bootstrap)
    ballast = volume / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    senders = [Sender(n, broker.bootstrap, places, ledger, config) for n, config in enumerate(SENDERS)]
    for sender in senders:
        sender.start()
    wait_for_progress(senders, ledger)
    wait_for_refusals(senders, ledger)
    note(f"full after {ledger.acknowledged_count} acknowledged records")
    for place in places:
        ledger.settle(place, read_log(broker.bootstrap, place, ledger))
    note("all of them readable while the disk is full")
    ballast.unlink()
    wait_for_progress(senders, ledger)
    note("writing resumed once there was room")
    fill_up(ballast)
    wait_for_refusals(senders, ledger)
    broker.kill()
    broker.start()
    for place in places:
        ledger.settle(place, read_log(broker.bootstrap, place, ledger))
    note("a broker killed on the full disk starts on it and is readable")
    ballast.unlink()
    wait_for_progress(senders, ledger)
    note("and takes writes when there is room")
    for sender in senders:
        sender.end()
    settle(broker, places, ledger)
    return Outcome(1, ledger.acknowledged_count, 0, ledger.violations)


def fill_up(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))


def wait_for_refusals(senders: list[Sender], ledger: Ledger) -> None:
    """Every sender hears of the full disk from now on, one of them with the broker's own code."""
    for sender in senders:
        sender.failed = 0
        sender.failure_codes.clear()
    deadline = time.monotonic() + PATIENCE_S
    while not all(sender.failed for sender in senders):
        if time.monotonic() > deadline:
            ledger.accuse("the disk never filled, or nobody was told")
            return
        time.sleep(0.05)
    codes = {code for sender in senders for code in sender.failure_codes}
    if "KAFKA_STORAGE_ERROR" not in codes:
        ledger.accuse(f"a full disk was answered with {sorted(codes)}, not KAFKA_STORAGE_ERROR")
