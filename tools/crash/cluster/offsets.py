"""A group coordinator with many committed offsets, and a client that commits while it is moved."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count, islice

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from runnel.broker.runtime.shards import java_hash
from tools.cluster.security import Properties
from tools.crash.chain.run import OFFSETS_PARTITIONS
from tools.crash.cluster.clients import REPLICAS, SENDER_SETTINGS, STUCK_S
from tools.crash.cluster.gaps import GapMeter
from tools.crash.load import CONNECTION

TOPIC = "committed"
PARTITIONS = 100
AT_ONCE = 50
PAUSE_S = 0.02
METERED = (TOPIC, 0)


def groups_together() -> Iterator[str]:
    """Names of groups that all have the same coordinator."""
    return (name for number in count() if java_hash(name := f"group-{number}") % OFFSETS_PARTITIONS == 0)


class Committed:
    """Groups with this many committed offsets in total, all in one partition of `__consumer_offsets`."""

    def __init__(self, bootstrap: str, offsets: int, properties: Properties) -> None:
        self.groups = list(islice(groups_together(), -(-offsets // PARTITIONS)))
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, **CONNECTION, **properties}
        )
        new = NewTopic(TOPIC, PARTITIONS, REPLICAS)
        self._admin.create_topics([new])[TOPIC].result(STUCK_S)

    @property
    def count(self) -> int:
        return len(self.groups) * PARTITIONS

    def commit(self) -> None:
        """Commit all offsets from outside of the groups. TimeoutError if that does not succeed in time."""
        for first in range(0, len(self.groups), AT_ONCE):
            left = list(range(first, min(first + AT_ONCE, len(self.groups))))
            deadline = time.monotonic() + STUCK_S
            while left := self._commit(left):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the offsets of {len(left)} groups could not be committed")
                time.sleep(PAUSE_S)

    def _commit(self, numbers: list[int]) -> list[int]:
        """Commit the offsets of these groups at once; those whose coordinator was moved or is late remain."""
        futures = []
        for number in numbers:
            places = [TopicPartition(TOPIC, partition, number) for partition in range(PARTITIONS)]
            wanted = ConsumerGroupTopicPartitions(self.groups[number], places)
            futures += self._admin.alter_consumer_group_offsets([wanted]).values()
        done = [_is_committed(future) for future in futures]
        return [number for number, is_done in zip(numbers, done, strict=True) if not is_done]

    def verify(self) -> Iterator[str]:
        """Every group whose offsets are not those that were committed."""
        for number, group in enumerate(self.groups):
            wanted = ConsumerGroupTopicPartitions(group)
            (future,) = self._admin.list_consumer_group_offsets([wanted]).values()
            found = {place.partition: place.offset for place in future.result(STUCK_S).topic_partitions}
            if found != dict.fromkeys(range(PARTITIONS), number):
                wrong = sum(offset != number for offset in found.values())
                yield f"group {group} has {len(found)} offsets of {PARTITIONS}, {wrong} of them wrong"


def _is_committed(future: "Future[ConsumerGroupTopicPartitions]") -> bool:
    try:
        # An error of a partition is no error of the request.
        return all(place.error is None for place in future.result(STUCK_S).topic_partitions)
    except KafkaException as late:
        if late.args[0].code() != KafkaError._TIMED_OUT:
            raise
        return False


class Committer(threading.Thread):
    """Commits the offset of one partition over and over, and measures the time between two successes."""

    def __init__(self, bootstrap: str, group: str, properties: Properties) -> None:
        super().__init__(name="committer", daemon=True)
        self.meter = GapMeter([METERED])
        self.commits = 0
        self._ending = threading.Event()
        timeouts = {key: value for key, value in SENDER_SETTINGS.items() if key.startswith("socket")}
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, **CONNECTION, **timeouts, **properties, "log_level": 0})

    def run(self) -> None:
        self._consumer.assign([TopicPartition(*METERED)])
        while not self._ending.wait(PAUSE_S):
            try:
                self._consumer.commit(offsets=[TopicPartition(*METERED, self.commits)], asynchronous=False)
            except KafkaException:
                continue
            self.commits += 1
            self.meter.acknowledged(METERED)
        self._consumer.close()

    def wait_for_commit(self) -> bool:
        """Whether a commit succeeds from now on, in time."""
        before, deadline = self.commits, time.monotonic() + STUCK_S
        while self.commits == before:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def end(self) -> None:
        self._ending.set()
        self.join()
