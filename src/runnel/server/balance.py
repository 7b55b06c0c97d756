"""Plans of replica assignments: drain a broker, rebalance a cluster, change a replication factor.

A plan has only the partitions that change. Replicas of a partition are spread over racks and then hosts;
among equals, over brokers with few replicas. As few replicas as possible are moved.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runnel.model.ids import TopicPartition

Assignments = dict[TopicPartition, list[int]]
"""The replicas of each partition; the first is the preferred leader."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a broker runs."""

    rack: str | None
    host: str


class TooFewBrokers(Exception):
    """Some partitions cannot be assigned to another broker."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(", ".join(map(str, partitions)))
        self.partitions = partitions


def plan_drain(assignments: Assignments, brokers: Mapping[int, Location], node: int) -> Assignments:
    """Replace `node` in all partitions by one of `brokers`. Raises TooFewBrokers."""
    balance = _Balance(assignments, {each: place for each, place in brokers.items() if each != node})
    plan: Assignments = {}
    stuck = []
    for partition, replicas in sorted(assignments.items()):
        if node in replicas:
            chosen = balance.best(replicas, is_leader=replicas[0] == node, without=node)
            if chosen is None:
                stuck.append(partition)
            else:
                plan[partition] = [chosen if each == node else each for each in replicas]
                balance.moved(replicas, plan[partition])
    if stuck:
        raise TooFewBrokers(stuck)
    return plan


def plan_factor(assignments: Assignments, brokers: Mapping[int, Location], factor: int) -> Assignments:
    """Give all partitions this number of replicas. Raises TooFewBrokers."""
    balance = _Balance(assignments, brokers)
    plan: Assignments = {}
    for partition, replicas in sorted(assignments.items()):
        wanted = list(replicas)
        while len(wanted) > factor:
            # The preferred leader stays; of the others, the one on the fullest broker goes.
            wanted.remove(max(wanted[1:], key=lambda each: (balance.replicas[each], each)))
        while len(wanted) < factor:
            chosen = balance.best(wanted, is_leader=False)
            if chosen is None:
                raise TooFewBrokers([partition])
            wanted.append(chosen)
        if wanted != replicas:
            plan[partition] = wanted
            balance.moved(replicas, wanted)
    return plan


def plan_rebalance(assignments: Assignments, brokers: Mapping[int, Location]) -> Assignments:
    """Give all brokers about as many replicas, and then about as many preferred leaders."""
    balance = _Balance(assignments, brokers)
    wanted = {partition: list(replicas) for partition, replicas in sorted(assignments.items())}
    _level_replicas(wanted, balance)
    _level_leaders(wanted, balance)
    return {
        partition: wanted[partition] for partition in wanted if wanted[partition] != assignments[partition]
    }


def _level_replicas(wanted: Assignments, balance: "_Balance") -> None:
    hosted: dict[int, list[TopicPartition]] = {}
    for partition, replicas in wanted.items():
        for each in replicas:
            hosted.setdefault(each, []).append(partition)
    is_level = False
    while not is_level:
        is_level = not any(_move_one(wanted, balance, hosted, high) for high in balance.fullest())


def _move_one(
    wanted: Assignments, balance: "_Balance", hosted: dict[int, list[TopicPartition]], high: int
) -> bool:
    """Move one replica from a full broker to an emptier one, if that makes the cluster more even."""
    for low in reversed(balance.fullest()):
        if balance.replicas[high] - balance.replicas[low] <= 1:
            return False
        for partition in hosted.get(high, ()):
            replicas = wanted[partition]
            moved = [low if each == high else each for each in replicas]
            if low not in replicas and balance.spread(moved) >= balance.spread(replicas):
                wanted[partition] = moved
                hosted[high].remove(partition)
                hosted.setdefault(low, []).append(partition)
                balance.moved(replicas, moved)
                return True
    return False


def _level_leaders(wanted: Assignments, balance: "_Balance") -> None:
    has_changed = True
    while has_changed:
        has_changed = False
        for partition, replicas in wanted.items():
            leader = replicas[0]
            best = min(replicas, key=lambda each: (balance.leaders[each], each != leader, each))
            if balance.leaders[leader] - balance.leaders[best] > 1:
                others = [each for each in replicas if each != best]
                wanted[partition] = [best, *others]
                balance.moved(replicas, wanted[partition])
                has_changed = True


class _Balance:
    """How many replicas and preferred leaders each broker has."""

    def __init__(self, assignments: Assignments, brokers: Mapping[int, Location]) -> None:
        self.brokers = brokers
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        for replicas in assignments.values():
            self.replicas.update(replicas)
            self.leaders[replicas[0]] += 1

    def moved(self, before: Sequence[int], after: Sequence[int]) -> None:
        """The replicas of a partition have changed."""
        self.replicas.subtract(before)
        self.replicas.update(after)
        self.leaders[before[0]] -= 1
        self.leaders[after[0]] += 1

    def fullest(self) -> list[int]:
        """The brokers, those with most replicas first."""
        return sorted(self.brokers, key=lambda each: (-self.replicas[each], each))

    def best(self, replicas: Sequence[int], *, is_leader: bool, without: int | None = None) -> int | None:
        """The broker for another replica of a partition; None if all have one."""
        others = [each for each in replicas if each != without]
        candidates = [each for each in self.brokers if each not in replicas]
        if not candidates:
            return None

        def rank(broker: int) -> tuple[int, int, int, int, int]:
            racks, hosts = self.spread([*others, broker])
            leaders = self.leaders[broker] if is_leader else 0
            return -racks, -hosts, self.replicas[broker], leaders, broker

        return min(candidates, key=rank)

    def spread(self, replicas: Iterable[int]) -> tuple[int, int]:
        """The number of racks and of hosts that have a replica."""
        places = [self.brokers[each] for each in replicas if each in self.brokers]
        racks = {place.rack for place in places if place.rack is not None}
        return len(racks), len({place.host for place in places})
