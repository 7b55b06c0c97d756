"""`make fuzz`: mutated frames against a live broker. Exit 1 if it dies, grows or meets a bug."""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.model.ids import id_from_text
from tools.broker_process import BrokerProcess, answers
from tools.crash.ledger import Ledger, Stamp
from tools.crash.load import Sender, read_log
from tools.fuzz.attack import Attack
from tools.fuzz.mutate import mutated
from tools.fuzz.samples import TOPIC, sample_frames
from tools.processes import memory_bytes

MEMORY_GROWTH_BYTES_MAX = 256 * 1024 * 1024
SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "4"}


def broken_frames(count: int, seed: int, topic_id: bytes) -> Iterator[bytes]:
    chance = random.Random(seed)
    pool = sample_frames(topic_id)
    for _ in range(count):
        yield mutated(chance, pool)


def create(bootstrap: str, topic: str) -> bytes:
    """Make a topic; its id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return id_from_text(str(described.topic_id))


def still_works(bootstrap: str) -> list[str]:
    """Produce and read back on a fresh topic."""
    create(bootstrap, "after")
    place = ("after", 0)
    ledger = Ledger(idempotent=frozenset([0]))
    sender = Sender(0, bootstrap, [place], ledger, {"enable.idempotence": True})
    sender.start()
    deadline = time.monotonic() + 30
    while sender.acknowledged < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    sender.end()
    found: list[tuple[int, Stamp]] = read_log(bootstrap, place, ledger)
    ledger.settle(place, found)
    return ledger.violations if sender.acknowledged >= 100 else ["nothing can be produced any more"]


def bugs(log: str) -> list[str]:
    """The distinct exceptions that the broker's log tells of."""
    return sorted(set(re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*$", log, re.MULTILINE)))[
        :20
    ]


async def attack(broker: BrokerProcess, frames: Iterator[bytes]) -> tuple[Attack, int]:
    """Fire all frames; returns the largest memory seen."""
    running = Attack(broker.port, frames)
    task = asyncio.create_task(running.run())
    largest = 0
    while not task.done():
        await asyncio.wait([task], timeout=2)
        largest = max(largest, memory_bytes(broker.pid))
        print(f"  {running.sent} frames, {largest >> 20} MB, {dict(running.fates)}", flush=True)
    task.result()
    return running, largest


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runnel-fuzz-") as folder:
        broker = BrokerProcess(Path(folder) / "data", SETTINGS)
        with broker:
            topic_id = create(broker.bootstrap, TOPIC)
            before = memory_bytes(broker.pid)
            began = time.monotonic()
            running, largest = asyncio.run(
                attack(broker, broken_frames(options.frames, options.seed, topic_id))
            )
            seconds = time.monotonic() - began
            complaints = still_works(broker.bootstrap) if answers(broker.port) else ["the broker is gone"]
        complaints += [f"in the broker's log: {line}" for line in bugs(broker.log_tail(10_000_000))]
    if largest - before > MEMORY_GROWTH_BYTES_MAX:
        complaints.append(f"memory grew from {before >> 20} MB to {largest >> 20} MB")
    print(f"{running.sent} mutated frames in {seconds:.0f} s: {dict(running.fates)}")
    print(f"memory {before >> 20} MB before, {largest >> 20} MB at most; seed {options.seed}")
    print(
        "\n".join(f"FAILED {complaint}" for complaint in complaints) or "the broker is alive, small and works"
    )
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
