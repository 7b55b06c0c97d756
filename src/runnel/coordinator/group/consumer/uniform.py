"""The uniform assignor: everyone gets as many partitions as anyone else, and what can stay stays.

A member keeps what it has up to its fair share. Only the rest, and what nobody has, is given out: to members
whose rack holds a copy, then to whoever has least. Where members want different topics, a fair share cannot
be told beforehand; there, partitions move one by one from those who have more to those who have less, for as
long as that makes the shares more alike.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from runnel.coordinator.group.consumer.assignor import GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition


def assign_uniformly(spec: GroupSpec) -> dict[str, Partitions]:
    """Assign so that the numbers of partitions are as alike as can be, with the fewest moves."""
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
    """What members have, as far as it exists and they still want it."""
    taken = set[TopicIdPartition]()
    existing = set(subscribed)
    assignments: dict[str, set[TopicIdPartition]] = {}
    for subscriber in spec.subscribers:
        assigned = {
            partition
            for partition in subscriber.has
            if partition.topic_id in subscriber.topics and partition in existing and partition not in taken
        }
        taken |= assigned
        assignments[subscriber.id] = assigned
    return assignments


def _trim_to_quota(spec: GroupSpec, assignments: dict[str, set[TopicIdPartition]], count: int) -> None:
    if not assignments:
        return
    fair, larger = divmod(count, len(assignments))
    # Those who have most are the ones for whom a larger share saves a move.
    for subscriber in sorted(spec.subscribers, key=lambda subscriber: -len(assignments[subscriber.id])):
        assigned = assignments[subscriber.id]
        limit = fair + (larger > 0)
        if len(assigned) > fair:
            larger -= larger > 0
        if len(assigned) > limit:
            kept = sorted(assigned, key=lambda held: (not spec.is_same_rack(subscriber, held), held))
            assignments[subscriber.id] = set(kept[:limit])


def _assign_remaining(
    spec: GroupSpec, assignments: dict[str, set[TopicIdPartition]], free: list[TopicIdPartition]
) -> None:
    """Each free partition goes to a member that has least, near ones first."""
    if not free:
        return
    near = [subscriber for subscriber in spec.subscribers if subscriber.rack is not None]
    rest = free
    if near and spec.is_uniform:
        rest = _assign_by_rack(spec, assignments, near, free)
    queues: dict[bytes, list[tuple[int, int]]] = {}
    subscribers = _subscribers_by_topic(spec)
    # Partitions that few may have come first, so that the others can make up for them.
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
            # It got more by way of another topic since it stood here.
            heappush(queue, (len(assignments[member.id]), index))
        assignments[member.id].add(partition)
        heappush(queue, (size + 1, index))


def _assign_by_rack(
    spec: GroupSpec,
    assignments: dict[str, set[TopicIdPartition]],
    near: list[Subscriber],
    free: list[TopicIdPartition],
) -> list[TopicIdPartition]:
    """Give partitions to members in a rack that has them, up to fair shares; what is left over."""
    fair = (sum(map(len, assignments.values())) + len(free)) // len(assignments)
    rest = []
    for partition in free:
        fitting = [
            subscriber
            for subscriber in near
            if len(assignments[subscriber.id]) < fair and spec.is_same_rack(subscriber, partition)
        ]
        if fitting:
            assignments[min(fitting, key=lambda subscriber: len(assignments[subscriber.id])).id].add(
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
    """Move partitions from larger shares to shares that are smaller by two or more, until none is."""
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
    """Let a member pass on what others need more; whether it did."""
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
