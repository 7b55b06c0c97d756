"""A group member made of librdkafka: tells what it owns, reads and commits as lines of JSON.

The lines are those of Kafka's own VerifiableConsumer, so that members of all makes are read alike. SIGTERM
makes it leave the group as a decent member does.
"""

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

TELL_EVERY_S = 0.03
COMMIT_EVERY_S = 0.3
COMMIT_TRIES = 20
RETRIED = (KafkaError.STALE_MEMBER_EPOCH, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._TIMED_OUT)


class Member:
    """One consumer, what it has read and not told yet, and what it has told and not committed yet."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.leaves = False
        self.read: dict[int, tuple[int, int]] = {}
        self.told: dict[int, int] = {}
        self.topic = topic
        self.consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        tell("startup_complete")
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def leave(self, _number: int, _frame: FrameType | None) -> None:
        self.leaves = True

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        tell("partitions_assigned", partitions=[{"partition": place.partition} for place in partitions])

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        # What is read is told and committed while the partitions are still ours.
        self.commit()
        tell("partitions_revoked", partitions=[{"partition": place.partition} for place in partitions])

    def lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.tell_read()
        self.told.clear()
        tell("partitions_lost", partitions=[{"partition": place.partition} for place in partitions])

    def run(self) -> None:
        told_s = committed_s = time.monotonic()
        while not self.leaves:
            message = self.consumer.poll(0.02)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                self.read[partition] = (self.read.get(partition, (offset, 0))[0], offset)
            now_s = time.monotonic()
            if now_s - told_s > TELL_EVERY_S:
                self.tell_read()
                told_s = now_s
            if now_s - committed_s > COMMIT_EVERY_S:
                self.commit()
                committed_s = now_s
        self.commit()
        self.consumer.close()
        tell("shutdown_complete")

    def tell_read(self) -> None:
        read, self.read = self.read, {}
        ranges = [
            {"partition": p, "minOffset": first, "maxOffset": last} for p, (first, last) in read.items()
        ]
        if ranges:
            tell("records_consumed", partitions=ranges)
        self.told.update({partition: last + 1 for partition, (_, last) in read.items()})

    def commit(self) -> None:
        self.tell_read()
        if not self.told:
            return
        offsets = [TopicPartition(self.topic, partition, offset) for partition, offset in self.told.items()]
        self.told.clear()
        error = self._committed(offsets)
        places = [{"partition": place.partition, "offset": place.offset} for place in offsets]
        tell("offsets_committed", offsets=places, success=error is None, error=str(error or ""))

    def _committed(self, offsets: list[TopicPartition]) -> KafkaError | None:
        """None when it worked; a member whose epoch moves meanwhile asks again."""
        failure: KafkaError | None = None
        for _ in range(COMMIT_TRIES):
            try:
                self.consumer.commit(offsets=offsets, asynchronous=False)
                return None
            except KafkaException as raised:
                failure = raised.args[0]
                if raised.args[0].code() not in RETRIED:
                    break
                time.sleep(0.05)
        return failure


def tell(name: str, **fields: Any) -> None:
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}), flush=True)


if __name__ == "__main__":
    member = Member(json.loads(sys.argv[2]), sys.argv[1])
    signal.signal(signal.SIGTERM, member.leave)
    member.run()
