"""Replica placement: over racks, then over hosts, then over brokers.

Each partition begins one rack further than the one before, and within a rack one broker further; its replicas
go round the racks. Brokers with the same advertised host fail together, so that replicas in one rack are on
different hosts as far as possible. Unfenced brokers are preferred, and the first replica is never fenced.
Brokers that are stopping or cordoned get no replicas.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import lcm

from runnel.controller.image import MetadataImage
from runnel.controller.partition_change import default_directory
from runnel.controller.values import BrokerRegistration, PartitionState
from runnel.model.errors import ApiError, ErrorCode


def assign_replicas(
    image: MetadataImage, count: int, replication_factor: int, first: int
) -> list[PartitionState]:
    """The states of `count` new partitions; `first` is where the placement begins."""
    usable = [
        broker
        for _, broker in sorted(image.brokers.items())
        if (broker.is_fenced or not broker.is_stopping) and not broker.is_cordoned
    ]
    complaint = None
    if replication_factor > len(usable):
        complaint = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered."
        )
    elif all(broker.is_fenced for broker in usable):
        complaint = "All brokers are currently fenced."
    if complaint:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {complaint}",
        )
    places = _Places(usable)
    # Equal states share one object; on a single node all are equal.
    states: dict[tuple[int, ...], PartitionState] = {}
    known: dict[Position, PartitionState] = {}
    assigned = []
    for number in range(first, first + count):
        position = places.position(number)
        state = known.get(position)
        if state is None:
            brokers = places.replicas(position, replication_factor)
            key = tuple(broker.id for broker in brokers)
            if key not in states:
                states[key] = _state(brokers)
            state = known[position] = states[key]
        assigned.append(state)
    return assigned


@dataclass(slots=True)
class _Taken:
    """The replicas of a partition, as they are chosen."""

    brokers: list[BrokerRegistration] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def add(self, node_id: int, host: str, broker: BrokerRegistration) -> None:
        self.brokers.append(broker)
        self.ids.add(node_id)
        self.hosts.add(host)


Position = tuple[int, int, int]
"""The first rack, where to begin in each rack, and the shift of the followers."""

Candidate = tuple[int, str, BrokerRegistration]
"""The id and host of a broker, and the broker."""


class _Rack:
    """The brokers of a rack, in an order in which neighbours are on different hosts."""

    __slots__ = ("fenced", "hosts", "unfenced")

    def __init__(self, brokers: Sequence[BrokerRegistration]) -> None:
        self.unfenced = _interleaved(broker for broker in brokers if not broker.is_fenced)
        self.fenced = _interleaved(broker for broker in brokers if broker.is_fenced)
        self.hosts = {broker.host for broker in brokers}

    def take(self, start: int, taken: _Taken, may_be_fenced: bool) -> None:
        """Take the next free broker from `start` on, on another host than those taken if there is one.

        Neighbours are on different hosts, so that few are examined.
        """
        for candidates in (self.unfenced, self.fenced) if may_be_fenced else (self.unfenced,):
            free: Candidate | None = None
            count = len(candidates)
            for step in range(count):
                candidate = candidates[(start + step) % count]
                if candidate[0] in taken.ids:
                    continue
                free = free or candidate
                if candidate[1] not in taken.hosts:
                    taken.add(*candidate)
                    return
                if self.hosts <= taken.hosts:
                    break
            if free is not None:
                taken.add(*free)
                return


class _Places:
    """The brokers that can get replicas, by rack."""

    def __init__(self, brokers: Sequence[BrokerRegistration]) -> None:
        by_rack: dict[str, list[BrokerRegistration]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack or "", []).append(broker)
        self._racks = [_Rack(by_rack[name]) for name in sorted(by_rack)]
        self._leaders = sum(len(rack.unfenced) for rack in self._racks)
        sizes = [len(some) for rack in self._racks for some in (rack.unfenced, rack.fenced) if some]
        self._turns = lcm(*sizes)

    def position(self, number: int) -> Position:
        """The position from which the replicas of a partition are chosen; positions repeat."""
        total, leaders = len(self._racks), self._leaders
        # With each cycle, the followers of a leader are other ones.
        shift = number // leaders % max(1, leaders - 1)
        return number % total, number // total % self._turns, shift

    def replicas(self, position: Position, replication_factor: int) -> list[BrokerRegistration]:
        """The replicas of a partition, the preferred leader first."""
        first, turn, shift = position
        total = len(self._racks)
        taken = _Taken()
        visited = 0
        while len(taken.brokers) < replication_factor:
            rack = self._racks[(first + visited) % total]
            start = turn + visited // total + (shift if taken.brokers else 0)
            rack.take(start, taken, may_be_fenced=bool(taken.brokers))
            visited += 1
        return taken.brokers


def _interleaved(brokers: Iterable[BrokerRegistration]) -> list[Candidate]:
    by_host: dict[str, list[Candidate]] = {}
    for broker in brokers:
        by_host.setdefault(broker.host, []).append((broker.id, broker.host, broker))
    return [broker for row in zip_longest(*by_host.values()) for broker in row if broker is not None]


def manual_assignment(image: MetadataImage, replicas: Sequence[int]) -> PartitionState:
    """The state of a new partition with a manual replica assignment, the preferred leader first."""
    check_replicas(image, replicas)
    brokers = [image.brokers[node_id] for node_id in replicas]
    if not any(broker.is_active for broker in brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment are fenced or in controlled shutdown.",
        )
    return _state(brokers)


def check_replicas(image: MetadataImage, replicas: Sequence[int]) -> None:
    """Validate a manual replica assignment. Raises ApiError."""
    complaint = None
    if not replicas:
        complaint = "The manual partition assignment includes an empty replica list."
    elif len(set(replicas)) < len(replicas):
        counts = Counter(replicas)
        twice = next(node_id for node_id in replicas if counts[node_id] > 1)
        complaint = f"The manual partition assignment includes the broker {twice} more than once."
    else:
        unknown = [node_id for node_id in replicas if node_id not in image.brokers]
        if unknown:
            complaint = (
                f"The manual partition assignment includes broker {unknown[0]}, "
                "but no such broker is registered."
            )
    if complaint:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)


def _state(brokers: Sequence[BrokerRegistration]) -> PartitionState:
    in_sync = tuple(broker.id for broker in brokers if broker.is_active)
    return PartitionState(
        replicas=tuple(broker.id for broker in brokers),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(default_directory(broker) for broker in brokers),
    )
