"""What the failure of a broker costs the controller, by the number of partitions in the cluster.

    python -m tools.bench.controller [--brokers 10] [--replicas 3] [--topic-size 100] [10000 100000 1000000]

A broker is fenced: it leaves all ISRs, and others lead its partitions. The decision, the encoding of its
records and their two replays (into the image ahead of the log, and into the committed one) are timed as the
controller makes them, in steps between which the event loop serves others. Times are those of the processor;
network and disk are not part of it.
"""

import argparse
import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import process_time

from runnel.controller.broker_changes import fence_broker, unfence_broker
from runnel.controller.features import FIRST_LEVELS
from runnel.controller.image import MetadataImage
from runnel.controller.placement import assign_replicas
from runnel.controller.record_versions import encode_records
from runnel.controller.settings import Settings
from runnel.controller.snapshot import partition_record
from runnel.controller.steps import Steps
from runnel.controller.values import Topic
from runnel.schemas.metadata import (
    BrokerEndpoint,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

BATCH_RECORDS = 10_000


@dataclass
class Costs:
    """Seconds by kind of work, and the longest time without a yield to the event loop."""

    decide: float = 0.0
    encode: float = 0.0
    replay: float = 0.0
    longest_step: float = 0.0
    records: int = 0
    steps: int = 0
    size_bytes: int = 0

    @property
    def total(self) -> float:
        return self.decide + self.encode + self.replay


@dataclass
class Controller:
    """The image ahead of the log and the committed one."""

    settings: Settings = field(default_factory=Settings)
    ahead: MetadataImage = field(default_factory=MetadataImage)
    committed: MetadataImage = field(default_factory=MetadataImage)

    def replay(self, records: list[MetadataRecord]) -> None:
        for image in (self.ahead, self.committed):
            image.replay_batch(records, image.version + len(records))

    def carry_out(self, steps: Steps[None]) -> Costs:
        """Make all steps, and time them."""
        costs = Costs()
        is_first = True
        while True:
            begun = process_time()
            try:
                records = next(steps) if is_first else steps.send(self.ahead)
            except StopIteration:
                return costs
            is_first = False
            decided = process_time()
            values = encode_records(records, self.ahead.metadata_level)
            encoded = process_time()
            self.replay(records)
            replayed = process_time()
            costs.decide += decided - begun
            costs.encode += encoded - decided
            costs.replay += replayed - encoded
            costs.longest_step = max(costs.longest_step, replayed - begun)
            costs.records += len(records)
            costs.steps += 1
            costs.size_bytes += sum(map(len, values))


def new_cluster(partitions: int, brokers: int, replicas: int, topic_size: int) -> Controller:
    """A controller with this many partitions, spread over all brokers."""
    controller = Controller()
    controller.replay([FeatureLevelRecord(name, level) for name, level in FIRST_LEVELS.items()])
    controller.replay([_registration(broker) for broker in range(1, brokers + 1)])
    batch: list[MetadataRecord] = []
    for record in _topics(controller.ahead, partitions, replicas, topic_size):
        batch.append(record)
        if len(batch) == BATCH_RECORDS:
            controller.replay(batch)
            batch = []
    controller.replay(batch)
    return controller


def _registration(broker: int) -> MetadataRecord:
    return RegisterBrokerRecord(
        broker,
        incarnation_id=bytes([broker]) * 16,
        end_points=[BrokerEndpoint("PLAINTEXT", f"host-{broker}", 9092)],
        fenced=False,
        log_dirs=[bytes([200, broker]) * 8],
    )


def _topics(
    image: MetadataImage, partitions: int, replicas: int, topic_size: int
) -> Iterator[MetadataRecord]:
    for number in range(partitions // topic_size):
        topic = Topic(f"topic-{number}", (number + 1).to_bytes(16))
        yield TopicRecord(topic.name, topic.id)
        for index, state in enumerate(assign_replicas(image, topic_size, replicas, number * topic_size)):
            yield partition_record(topic, index, state)


def _index(controller: Controller) -> tuple[float, float, float]:
    """Seconds to build the index, the longest step, and its size in bytes per partition."""
    tracemalloc.start()
    for _ in controller.ahead.copy().build_index():
        pass
    traced = controller.ahead.copy()
    before = tracemalloc.get_traced_memory()[0]
    index = traced.index
    size = (tracemalloc.get_traced_memory()[0] - before) / max(1, traced.partition_count)
    tracemalloc.stop()
    del index
    begun = last = process_time()
    longest = 0.0
    for _ in controller.ahead.build_index():
        now = process_time()
        longest, last = max(longest, now - last), now
    ended = process_time()
    return ended - begun, max(longest, ended - last), size


def measure(partitions: int, brokers: int, replicas: int, topic_size: int) -> None:
    """Print the costs for one number of partitions."""
    begun = process_time()
    controller = new_cluster(partitions, brokers, replicas, topic_size)
    gc.collect()
    gc.freeze()
    print(f"{partitions:,} partitions, {brokers} brokers, {replicas} replicas, topics of {topic_size}")
    print(f"  created and replayed twice      {process_time() - begun:8.2f} s")
    seconds, longest, size = _index(controller)
    print(
        f"  index built                     {seconds:8.2f} s   longest step {longest * 1000:6.1f} ms   "
        f"{size:.0f} bytes a partition"
    )
    for name, steps in (
        ("fails", fence_broker(controller.ahead, controller.settings, 1)),
        ("returns", unfence_broker(controller.ahead, controller.settings, 1)),
    ):
        costs = controller.carry_out(steps)
        each = costs.total / max(1, costs.records) * 1e6
        print(
            f"  a broker {name:8}              {costs.total:8.2f} s   longest step "
            f"{costs.longest_step * 1000:6.1f} ms   {costs.records:,} records in {costs.steps} batches, "
            f"{costs.size_bytes / 1e6:.1f} MB, {each:.1f} µs each\n"
            f"    decide {costs.decide:.2f} s, encode {costs.encode:.2f} s, replay twice {costs.replay:.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("partitions", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--topic-size", type=int, default=100)
    arguments = parser.parse_args()
    for partitions in arguments.partitions:
        measure(partitions, arguments.brokers, arguments.replicas, arguments.topic_size)


if __name__ == "__main__":
    main()
