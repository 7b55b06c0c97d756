"""A group member with librdkafka: reports what it owns, reads and commits as lines of JSON.

The lines are those of Kafka's own VerifiableConsumer, so that all members are parsed alike. SIGTERM makes it
leave the group.
"""

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

REPORT_INTERVAL_S = 0.03
COMMIT_INTERVAL_S = 0.3
COMMIT_ATTEMPTS = 20
RETRIED = (KafkaError.STALE_MEMBER_EPOCH, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._TIMED_OUT)


class Member:
    """One consumer, what it has read but not reported, and what it has reported but not committed."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.leaves = False
        self.read: dict[int, tuple[int, int]] = {}
        self.uncommitted: dict[int, int] = {}
        self.topic = topic
        self.consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        report("startup_complete")
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def leave(self, _number: int, _frame: FrameType | None) -> None:
        self.leaves = True

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        report("partitions_assigned", partitions=[{"partition": each.partition} for each in partitions])

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        # What was read is reported and committed while the partitions are still assigned.
        self.commit()
        report("partitions_revoked", partitions=[{"partition": each.partition} for each in partitions])

    def lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.report_read()
        self.uncommitted.clear()
        report("partitions_lost", partitions=[{"partition": each.partition} for each in partitions])

    def run(self) -> None:
        reported_s = committed_s = time.monotonic()
        while not self.leaves:
            message = self.consumer.poll(0.02)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                self.read[partition] = (self.read.get(partition, (offset, 0))[0], offset)
            now_s = time.monotonic()
            if now_s - reported_s > REPORT_INTERVAL_S:
                self.report_read()
                reported_s = now_s
            if now_s - committed_s > COMMIT_INTERVAL_S:
                self.commit()
                committed_s = now_s
        self.commit()
        self.consumer.close()
        report("shutdown_complete")

    def report_read(self) -> None:
        read, self.read = self.read, {}
        ranges = [
            {"partition": p, "minOffset": first, "maxOffset": last} for p, (first, last) in read.items()
        ]
        if ranges:
            report("records_consumed", partitions=ranges)
        self.uncommitted.update({partition: last + 1 for partition, (_, last) in read.items()})

    def commit(self) -> None:
        self.report_read()
        if not self.uncommitted:
            return
        offsets = [
            TopicPartition(self.topic, partition, offset) for partition, offset in self.uncommitted.items()
        ]
        self.uncommitted.clear()
        error = self._committed(offsets)
        committed = [{"partition": each.partition, "offset": each.offset} for each in offsets]
        report("offsets_committed", offsets=committed, success=error is None, error=str(error or ""))

    def _committed(self, offsets: list[TopicPartition]) -> KafkaError | None:
        """None on success; a member whose epoch changes meanwhile retries."""
        failure: KafkaError | None = None
        for _ in range(COMMIT_ATTEMPTS):
            try:
                self.consumer.commit(offsets=offsets, asynchronous=False)
                return None
            except KafkaException as raised:
                failure = raised.args[0]
                if raised.args[0].code() not in RETRIED:
                    break
                time.sleep(0.05)
        return failure


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}), flush=True)


if __name__ == "__main__":
    member = Member(json.loads(sys.argv[2]), sys.argv[1])
    signal.signal(signal.SIGTERM, member.leave)
    member.run()
