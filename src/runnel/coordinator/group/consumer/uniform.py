"""The uniform assignor: balanced and sticky.

Members retain their partitions up to their quota. The remaining and the unassigned partitions are assigned to
members in the same rack as a replica first, then to the member with the fewest. If subscriptions differ, a
quota cannot be computed in advance; then partitions are moved one by one from members with more to members
with fewer until the assignment is balanced.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from runnel.coordinator.group.consumer.assignor import GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition


def assign_uniformly(spec: GroupSpec) -> dict[str, Partitions]:
    """A balanced assignment with as few moves as possible."""
    subscribed = spec.subscribed()
    assignments = _retained(spec, subscribed)
    if spec.is_uniform:
        _trim_to_quota(spec, assignments, len(subscribed))
    held = set[TopicIdPartition]().union(*assignments.values())
    _assign_remaining(spec, assignments, [partition for partition in subscribed if partition not in held])
    if not spec.is_uniform:
        _balance(spec, assignments)
    return {member_id: frozenset(assigned) for member_id, assigned in assignments.items()}


def _retained(spec: GroupSpec, subscribed: Iterable[TopicIdPartition]) -> dict[str, set[TopicIdPartition]]:
    """The previous assignment, without deleted and unsubscribed partitions."""
    taken = set[TopicIdPartition]()
    existing = set(subscribed)
    assignments: dict[str, set[TopicIdPartition]] = {}
    for subscriber in spec.subscribers:
        assigned = {
            partition
            for partition in subscriber.assigned
            if partition.topic_id in subscriber.topics and partition in existing and partition not in taken
        }
        taken |= assigned
        assignments[subscriber.id] = assigned
    return assignments


def _trim_to_quota(spec: GroupSpec, assignments: dict[str, set[TopicIdPartition]], count: int) -> None:
    if not assignments:
        return
    quota, extra = divmod(count, len(assignments))
    # The larger quotas go to the members with the most partitions, which saves moves.
    for subscriber in sorted(spec.subscribers, key=lambda subscriber: -len(assignments[subscriber.id])):
        assigned = assignments[subscriber.id]
        limit = quota + (extra > 0)
        if len(assigned) > quota:
            extra -= extra > 0
        if len(assigned) > limit:
            kept = sorted(assigned, key=lambda held: (not spec.is_same_rack(subscriber, held), held))
            assignments[subscriber.id] = set(kept[:limit])


def _assign_remaining(
    spec: GroupSpec, assignments: dict[str, set[TopicIdPartition]], free: list[TopicIdPartition]
) -> None:
    """Assign each unassigned partition to the member with the fewest, preferably in the same rack."""
    if not free:
        return
    near = [subscriber for subscriber in spec.subscribers if subscriber.rack is not None]
    rest = free
    if near and spec.is_uniform:
        rest = _assign_by_rack(spec, assignments, near, free)
    queues: dict[bytes, list[tuple[int, int]]] = {}
    subscribers = _subscribers_by_topic(spec)
    # Partitions with few subscribers first, so that the others can balance them.
    for partition in sorted(rest, key=lambda partition: len(subscribers[partition.topic_id])):
        members = subscribers[partition.topic_id]
        queue = queues.get(partition.topic_id)
        if queue is None:
            queue = queues[partition.topic_id] = [
                (len(assignments[member.id]), index) for index, member in enumerate(members)
            ]
            heapify(queue)
        while True:
            size, index = heappop(queue)
            member = members[index]
            if size == len(assignments[member.id]):
                break
            # Outdated entry: the member was assigned partitions of another topic since.
            heappush(queue, (len(assignments[member.id]), index))
        assignments[member.id].add(partition)
        heappush(queue, (size + 1, index))


def _assign_by_rack(
    spec: GroupSpec,
    assignments: dict[str, set[TopicIdPartition]],
    near: list[Subscriber],
    free: list[TopicIdPartition],
) -> list[TopicIdPartition]:
    """Assign partitions to members in the rack of a replica, up to their quota; returns the others."""
    quota = (sum(map(len, assignments.values())) + len(free)) // len(assignments)
    rest = []
    for partition in free:
        candidates = [
            subscriber
            for subscriber in near
            if len(assignments[subscriber.id]) < quota and spec.is_same_rack(subscriber, partition)
        ]
        if candidates:
            assignments[min(candidates, key=lambda subscriber: len(assignments[subscriber.id])).id].add(
                partition
            )
        else:
            rest.append(partition)
    return rest


def _subscribers_by_topic(spec: GroupSpec) -> dict[bytes, list[Subscriber]]:
    subscribers: dict[bytes, list[Subscriber]] = {}
    for subscriber in spec.subscribers:
        for topic_id in subscriber.topics:
            subscribers.setdefault(topic_id, []).append(subscriber)
    return subscribers


def _balance(spec: GroupSpec, assignments: dict[str, set[TopicIdPartition]]) -> None:
    """Move partitions until no two members differ by more than one, as far as subscriptions allow."""
    subscribers = _subscribers_by_topic(spec)
    has_moved = True
    while has_moved:
        has_moved = False
        smallest = min(map(len, assignments.values()))
        for source in sorted(spec.subscribers, key=lambda subscriber: -len(assignments[subscriber.id])):
            if len(assignments[source.id]) > smallest + 1:
                has_moved |= _move_from(source, subscribers, assignments)


def _move_from(
    source: Subscriber,
    subscribers: dict[bytes, list[Subscriber]],
    assignments: dict[str, set[TopicIdPartition]],
) -> bool:
    """Move partitions from a member to members with fewer; returns whether any was moved."""
    assigned = assignments[source.id]
    size_before = len(assigned)
    for topic_id in sorted({partition.topic_id for partition in assigned}):
        for partition in sorted(held for held in assigned if held.topic_id == topic_id):
            destination = min(subscribers[topic_id], key=lambda member: len(assignments[member.id]))
            if len(assignments[destination.id]) + 1 >= len(assigned):
                break
            assigned.discard(partition)
            assignments[destination.id].add(partition)
    return len(assigned) < size_before
