"""Full load without a fault: no broker may be fenced, and no leader elected."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.cluster import changes, view
from tools.cluster.metadata_records import Changes, changes_since
from tools.crash.cluster.clients import STUCK_S
from tools.crash.cluster.world import SETTINGS, World, new_world
from tools.crash.load import CONNECTION
from tools.crash.rounds import Progress

SEGMENT = {"segment.bytes": str(16 * 1024 * 1024)}
TOPICS = {
    "plain": {**SEGMENT, "retention.bytes": str(64 * 1024 * 1024)},
    "compacted": {**SEGMENT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
}
PARTITIONS = 3
FAST_CLEANING = {"log.retention.check.interval.ms": "5000", "log.cleaner.backoff.ms": "1000"}
LARGE = "large"
"""Has two replicas at first; the third one has to fetch all of it."""
LARGE_BYTES = 512 * 1024 * 1024
KEYS = 20_000
VALUE_BYTES = 1000


@dataclass(slots=True)
class QuietOutcome:
    """What happened in a cluster to which nothing was done."""

    seconds: float = 0.0
    sent: int = 0
    read: int = 0
    caught_up_s: float = 0.0
    changes: Changes = field(default_factory=lambda: Changes([], 0, 0, set(), 0))
    violations: list[str] = field(default_factory=list)


class FullLoad(threading.Thread):
    """A producer as fast as the cluster allows, with acks=all."""

    def __init__(self, bootstrap: str, topic: str, records_max: int | None = None) -> None:
        super().__init__(name=f"load-{topic}", daemon=True)
        self.topic = topic
        self.records_max = records_max
        self.sent = 0
        self.failures: list[str] = []
        self._random = random.Random(topic)
        self._ending = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **CONNECTION}
        self._producer = Producer({**settings, "log_level": 0})

    def run(self) -> None:
        value = self._random.randbytes(VALUE_BYTES)
        produced = 0
        while not self._ending.is_set() and produced != self.records_max:
            key = b"%d" % self._random.randrange(KEYS)
            try:
                self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
                produced += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
        if self._producer.flush(STUCK_S):
            self.failures.append(f"stuck: {len(self._producer)} sends to {self.topic} without an answer")

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.sent += 1
        elif len(self.failures) < 3:
            self.failures.append(f"a send to {self.topic} failed: {error}")


class GroupReader(threading.Thread):
    """A group of one that reads all topics as they grow."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.read = 0
        self._ending = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "quiet", "auto.offset.reset": "latest"}
        self._consumer = Consumer({**settings, **CONNECTION, "log_level": 0})

    def run(self) -> None:
        self._consumer.subscribe(list(TOPICS))
        while not self._ending.is_set():
            self.read += sum(message.error() is None for message in self._consumer.consume(1000, 0.2))
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join()


def quiet(
    folder: Path, minutes: float, seed: int, progress: Progress, is_kafka: bool = False
) -> QuietOutcome:
    """A cluster under full load for `minutes`."""
    outcome = QuietOutcome()
    with new_world(folder, seed, progress, {**SETTINGS, **FAST_CLEANING}, is_kafka) as world:
        create_topics(world.cluster.bootstrap)
        fill = FullLoad(world.cluster.bootstrap, LARGE, LARGE_BYTES // VALUE_BYTES)
        fill.start()
        fill.join()
        world.settle()
        progress(f"{fill.sent} records for the replica that is added: full load begins")
        try:
            under_load(world, minutes * 60, outcome)
        except view.Unreachable as unreachable:
            outcome.violations.append(str(unreachable))
        judge(outcome)
        if outcome.violations:
            progress(world.logs())
    return outcome


def under_load(world: World, seconds: float, outcome: QuietOutcome) -> None:
    bootstrap, data = world.cluster.bootstrap, next(iter(world.cluster.nodes.values())).place.data
    loads = [FullLoad(bootstrap, topic) for topic in TOPICS]
    reader = GroupReader(bootstrap)
    for thread in (*loads, reader):
        thread.start()
    before = changes_since(data, 0)
    began = time.monotonic()
    replicas = view.state(bootstrap).partitions[LARGE, 0].replicas
    added = [*replicas, *(number for number in world.cluster.nodes if number not in replicas)]
    changes.reassign(bootstrap, {(LARGE, 0): added})
    while (elapsed_s := time.monotonic() - began) < seconds:
        time.sleep(min(10.0, seconds - elapsed_s))
        if not outcome.caught_up_s and changes.moving(bootstrap) == 0:
            outcome.caught_up_s = time.monotonic() - began
        outcome.changes = changes_since(data, before.end_offset)
        world.progress(
            f"{time.monotonic() - began:.0f} s: {sum(load.sent for load in loads)} sent, {reader.read} read, "
            f"{len(outcome.changes.fencings)} fencings, {outcome.changes.elections} elections, "
            f"{outcome.changes.in_sync_changes} changes of ISRs"
        )
    for load in loads:
        load.end()
    reader.end()
    outcome.seconds = time.monotonic() - began
    outcome.sent, outcome.read = sum(load.sent for load in loads), reader.read
    outcome.violations += [failure for load in loads for failure in load.failures]
    outcome.changes.quorum_epochs |= before.quorum_epochs


def judge(outcome: QuietOutcome) -> None:
    """Everything that must not have happened."""
    found = outcome.changes
    if found.fencings:
        outcome.violations.append(f"brokers were fenced: {found.fencings}")
    if found.elections:
        outcome.violations.append(f"{found.elections} partitions got another leader")
    if len(found.quorum_epochs) > 1:
        outcome.violations.append(f"controllers were elected: epochs {sorted(found.quorum_epochs)}")
    if not outcome.caught_up_s:
        outcome.violations.append("the replica that was added did not catch up")


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = [NewTopic(name, PARTITIONS, 3, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics([*new, NewTopic(LARGE, 1, 2, config=SEGMENT)]).values():
        future.result(STUCK_S)
