"""A broker under mutated frames: it must stay available within its memory limits, and log no exception."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.model.ids import id_from_text
from tools.broker_process import BrokerProcess, answers
from tools.crash.ledger import Ledger
from tools.crash.load import Sender, read_log
from tools.crash.rounds import Progress, no_progress
from tools.fuzz.attack import Attack
from tools.fuzz.mutate import mutated
from tools.fuzz.recordings import Recordings, record
from tools.fuzz.relay import Relay
from tools.fuzz.samples import TOPIC, ends_topic, sample_frames
from tools.processes import memory_bytes

MEMORY_GROWTH_BYTES_MAX = 256 * 1024 * 1024
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
BUGS_SHOWN_MAX = 20


@dataclass(slots=True)
class Outcome:
    """What the frames did to the broker."""

    outcomes: Counter[str]
    kinds: Counter[str]
    """How many of the frames were declared by us, and how many captured from a client."""
    recordings: Recordings
    seconds: float
    memory_before_bytes: int
    memory_largest_bytes: int
    complaints: list[str]


def fuzz(folder: Path, count: int, seed: int, progress: Progress = no_progress) -> Outcome:
    """Send `count` mutated frames to a new broker."""
    broker = BrokerProcess(folder / "data", SETTINGS)
    kinds: Counter[str] = Counter()
    with Relay(broker.port) as relay:
        # Clients connect to the advertised address.
        broker.settings["advertised.listeners"] = f"PLAINTEXT://{relay.address}"
        with broker:
            topic_id = create(broker.bootstrap, TOPIC)
            recordings = record(relay)
            pools = {"declared": sample_frames(topic_id), "captured": recordings.frames}
            before = memory_bytes(broker.pid)
            began = time.monotonic()
            frames = mutated_frames(count, seed, pools, kinds, topic_id)
            outcomes, largest = asyncio.run(attack(broker, frames, progress))
            seconds = time.monotonic() - began
            complaints = (
                still_works(broker.bootstrap)
                if answers(broker.port)
                else ["the broker does not answer any more"]
            )
    complaints += [f"in the broker's log: {line}" for line in bugs(broker.log_tail(10**9))]
    if largest - before > MEMORY_GROWTH_BYTES_MAX:
        complaints.append(f"memory grew from {before >> 20} MB to {largest >> 20} MB")
    return Outcome(outcomes, kinds, recordings, seconds, before, largest, complaints)


def mutated_frames(
    count: int, seed: int, pools: Mapping[str, list[bytes]], kinds: Counter[str], topic_id: bytes
) -> Iterator[bytes]:
    """Mutated frames of randomly chosen pools, counted by kind."""
    chance = random.Random(seed)
    # What is captured differs from run to run: it must not change the mutations of the others.
    chances = {kind: random.Random(f"{seed} {kind}") for kind, pool in pools.items() if pool}
    for _ in range(count):
        kind = chance.choice(list(chances))
        while ends_topic(frame := mutated(chances[kind], pools[kind]), topic_id):
            pass
        kinds[kind] += 1
        yield frame


def create(bootstrap: str, topic: str) -> bytes:
    """Create a topic; its id."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return id_from_text(str(described.topic_id))


async def attack(
    broker: BrokerProcess, frames: Iterator[bytes], progress: Progress
) -> tuple[Counter[str], int]:
    """Send all frames; their outcomes, and the largest memory seen."""
    running = Attack(broker.port, frames)
    task = asyncio.create_task(running.run())
    largest = 0
    while not task.done():
        await asyncio.wait([task], timeout=2)
        largest = max(largest, memory_bytes(broker.pid))
        progress(f"{running.sent} frames, {largest >> 20} MB, {dict(running.outcomes)}")
    task.result()
    return running.outcomes, largest


def still_works(bootstrap: str) -> list[str]:
    """Produce to a new topic and read it back; what went wrong."""
    create(bootstrap, "after")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if TOPIC not in admin.list_topics(timeout=30).topics:
        return ["the topic that most frames name was deleted: they tried nothing"]
    partition = ("after", 0)
    ledger = Ledger(idempotent=frozenset([0]))
    sender = Sender(0, bootstrap, [partition], ledger, {"enable.idempotence": True})
    sender.start()
    deadline = time.monotonic() + 30
    while sender.acknowledged < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    sender.end()
    ledger.verify(partition, read_log(bootstrap, partition, ledger))
    return ledger.violations if sender.acknowledged >= 100 else ["nothing can be produced any more"]


def bugs(log: str) -> list[str]:
    """The distinct exceptions in the broker's log."""
    raised = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", log, re.MULTILINE)
    return sorted(set(raised))[:BUGS_SHOWN_MAX]
