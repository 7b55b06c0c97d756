"""Metrics of the partitions of this node, and of those without a leader on the active controller.

Names of the JMX exporter (kafka_server_replicamanager_…, kafka_cluster_partition_…, kafka_log_log_size) and
of kafka_exporter (kafka_topic_partition_…). A partition is shown by its leader; the size of its log by every
replica.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from runnel.broker.metrics.series import PARTITION_SERIES_MAX, ROWS_PER_STEP
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.settings import Settings
from runnel.controller.values import PartitionState
from runnel.model.ids import NO_LEADER
from runnel.observe.metrics import Family, Labels, Sample, one
from runnel.replica.leader import LeaderReplica

_REPLICAS = "kafka_server_replicamanager_"
_PARTITION = "kafka_cluster_partition_"
_TOPIC = "kafka_topic_partition_"


@dataclass(slots=True)
class Led:
    """A partition that this node leads, or that has no leader."""

    labels: Labels
    leader: int
    replicas: tuple[int, ...]
    in_sync: int
    is_at_min_isr: bool = False
    is_under_min_isr: bool = False
    end_offset: int | None = None
    """None if only its replicas know it."""
    start_offset: int | None = None

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < len(self.replicas)


@dataclass(slots=True)
class Found:
    """What was found about all partitions."""

    has_series: bool
    """Are single partitions shown?"""
    led: list[Led] = field(default_factory=list)
    sizes: list[Sample] = field(default_factory=list)
    lags: list[tuple[Labels, int | None, int]] = field(default_factory=list)
    """(labels, records, milliseconds) by which followers are behind."""
    max_lags: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The largest of these by follower."""
    size_bytes: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    late_transactions: int = 0
    failed_logs: int = 0


class PartitionMetrics:
    """The partitions of a node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __call__(self) -> Iterator[Family | None]:
        partitions = list(self._broker.partitions.values())
        found = Found(has_series=len(partitions) <= PARTITION_SERIES_MAX)
        late_ms = _late_ms(self._broker.settings)
        now_ms = self._broker.clock.monotonic_ms()
        for number, partition in enumerate(partitions):
            self._examine(partition, found, now_ms, late_ms)
            if number % ROWS_PER_STEP == 0:
                yield None
        if found.has_series and self._broker.metadata.is_active:
            yield from self._add_leaderless(found)
        yield from self._sums(found, len(partitions))
        if found.has_series:
            yield from _series(found)
        yield from _lags(found)

    def _examine(self, partition: ReplicatedLog, found: Found, now_ms: int, late_ms: int) -> None:
        log = partition.log
        size_bytes = log.size_bytes
        found.size_bytes += size_bytes
        labels: Labels = (("topic", partition.name.topic), ("partition", str(partition.name.partition)))
        if found.has_series:
            found.sizes.append((labels, size_bytes))
        found.failed_logs += log.failure is not None
        open_ms = log.open_transaction_ms
        found.late_transactions += open_ms is not None and open_ms > late_ms
        leader = partition.replica
        state = self._broker.metadata.image.partition(*partition.name)
        if not partition.is_leader or not isinstance(leader, LeaderReplica) or state is None:
            return
        isr_min = min(leader.isr_min, len(leader.replicas))
        led = Led(
            labels,
            self._broker.node_id,
            state.replicas,
            len(leader.isr),
            is_at_min_isr=len(leader.isr) == isr_min,
            is_under_min_isr=len(leader.isr) < isr_min,
            end_offset=partition.high_watermark,
            start_offset=log.log_start_offset,
        )
        found.leaders += 1
        found.under_replicated += led.is_under_replicated
        found.under_min_isr += led.is_under_min_isr
        found.at_min_isr += led.is_at_min_isr
        found.reassigning += bool(state.adding or state.removing)
        if found.has_series:
            found.led.append(led)
        for node in leader.followers:
            self._examine_follower(leader, node, labels, found, now_ms)

    def _examine_follower(
        self, leader: LeaderReplica, node: int, labels: Labels, found: Found, now_ms: int
    ) -> None:
        records, behind_ms = leader.lag_of(node, now_ms)
        max_records, max_ms = found.max_lags.get(node, (0, 0))
        found.max_lags[node] = max(max_records, records or 0), max(max_ms, behind_ms)
        if found.has_series:
            found.lags.append(((*labels, ("replica", str(node))), records, behind_ms))

    def _add_leaderless(self, found: Found) -> Iterator[None]:
        """On the active controller: the partitions that no other node shows."""
        for number, topic in enumerate(list(self._broker.metadata.image.topics.values())):
            for index, state in enumerate(topic.partitions):
                if state.leader == NO_LEADER and len(found.led) < PARTITION_SERIES_MAX:
                    found.led.append(_leaderless(topic.name, index, state))
            if number % ROWS_PER_STEP == 0:
                yield None

    def _sums(self, found: Found, count: int) -> Iterator[Family]:
        events = self._broker.events
        for name, help_text, value in (
            ("partitioncount", "Partitions on this node.", count),
            ("leadercount", "Partitions that this node leads.", found.leaders),
            (
                "underreplicatedpartitions",
                "Partitions led here with fewer in-sync replicas than replicas.",
                found.under_replicated,
            ),
            (
                "underminisrpartitioncount",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
                found.under_min_isr,
            ),
            (
                "atminisrpartitioncount",
                "Partitions led here with exactly min.insync.replicas in sync.",
                found.at_min_isr,
            ),
            ("reassigningpartitions", "Partitions led here that are being reassigned.", found.reassigning),
            (
                "partitionswithlatetransactionscount",
                "Partitions with a transaction that should have been aborted by a timeout.",
                found.late_transactions,
            ),
        ):
            yield one(_REPLICAS + name, "gauge", help_text, value)
        expands, shrinks = events.isr_expands, events.isr_shrinks
        yield one(f"{_REPLICAS}isrexpands_total", "counter", "ISRs led here that grew.", expands)
        yield one(f"{_REPLICAS}isrshrinks_total", "counter", "ISRs led here that shrank.", shrinks)
        yield Family(
            "runnel_isr_changes_total",
            "counter",
            "Changes of the ISRs of partitions led here.",
            (((("kind", "expand"),), expands), ((("kind", "shrink"),), shrinks)),
        )
        yield one(
            "runnel_failed_logs",
            "gauge",
            "Logs of partitions that take no writes because of a failure.",
            found.failed_logs,
        )
        yield one("runnel_log_bytes", "gauge", "Size of all logs on this node.", found.size_bytes)
        yield one(
            "runnel_partition_series_omitted",
            "gauge",
            f"1 if single partitions are not shown, as there are more than {PARTITION_SERIES_MAX}.",
            not found.has_series,
        )


def _late_ms(settings: Settings) -> int:
    """After which silence of its producer a transaction should have been aborted, as it has timed out."""
    interval_ms = settings.int("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    return settings.int("transaction.max.timeout.ms") + 2 * interval_ms


def _leaderless(topic: str, index: int, state: PartitionState) -> Led:
    labels: Labels = (("topic", topic), ("partition", str(index)))
    return Led(labels, NO_LEADER, state.replicas, len(state.isr))


def _series(found: Found) -> Iterator[Family]:
    yield Family("kafka_log_log_size", "gauge", "Size of the log of a partition on this node.", found.sizes)
    by_partition: tuple[tuple[str, str, Callable[[Led], int | None]], ...] = (
        (f"{_PARTITION}atminisr", "1 if exactly min.insync.replicas are in sync.", lambda p: p.is_at_min_isr),
        (f"{_PARTITION}underminisr", "1 if fewer than that are in sync.", lambda p: p.is_under_min_isr),
        (f"{_TOPIC}current_offset", "End of the partition: its high watermark.", lambda p: p.end_offset),
        (f"{_TOPIC}oldest_offset", "Start of the partition.", lambda p: p.start_offset),
        (f"{_TOPIC}leader", "Node id of the leader, -1 if there is none.", lambda p: p.leader),
        (f"{_TOPIC}replicas", "Replicas of the partition.", lambda p: len(p.replicas)),
        (f"{_TOPIC}in_sync_replica", "In-sync replicas of the partition.", lambda p: p.in_sync),
        (
            f"{_TOPIC}leader_is_preferred",
            "1 if the leader is the preferred one.",
            lambda p: bool(p.replicas) and p.leader == p.replicas[0],
        ),
        (
            f"{_TOPIC}under_replicated_partition",
            "1 if fewer replicas are in sync than there are.",
            lambda p: p.is_under_replicated,
        ),
    )
    for name, help_text, read in by_partition:
        yield Family(name, "gauge", help_text, _samples(found.led, read))


def _samples(led: list[Led], read: Callable[[Led], int | None]) -> Iterator[Sample]:
    for partition in led:
        value = read(partition)
        if value is not None:
            yield partition.labels, int(value)


def _lags(found: Found) -> Iterator[Family]:
    """By partition and follower; if single partitions are not shown, the largest of each follower."""
    records: list[Sample]
    seconds: list[Sample]
    if found.has_series:
        records = [(labels, count) for labels, count, _ in found.lags if count is not None]
        seconds = [(labels, behind_ms / 1000) for labels, _, behind_ms in found.lags]
    else:
        largest = sorted(found.max_lags.items())
        records = [((("replica", str(node)),), count) for node, (count, _) in largest]
        seconds = [((("replica", str(node)),), behind_ms / 1000) for node, (_, behind_ms) in largest]
    yield Family(
        "runnel_replica_lag_records",
        "gauge",
        "Records of a partition led here that a follower lacks.",
        records,
    )
    yield Family(
        "runnel_replica_lag_seconds",
        "gauge",
        "How long ago a follower had all records of a partition led here; 0 if it has them.",
        seconds,
    )
