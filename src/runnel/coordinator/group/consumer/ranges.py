"""The range assignor: each member gets a contiguous range of the partitions of each topic.

Topics with the same number of partitions and the same subscribers are assigned alike (co-partitioning).
"""

from runnel.coordinator.group.consumer.assignor import GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition


def assign_ranges(spec: GroupSpec) -> dict[str, Partitions]:
    """Divide each topic into ranges, one per subscribed member; the first ones are longer."""
    assignments: dict[str, set[TopicIdPartition]] = {subscriber.id: set() for subscriber in spec.subscribers}
    in_order = sorted(spec.subscribers, key=_sort_key)
    for topic in spec.topics.values():
        subscribers = [subscriber for subscriber in in_order if topic.id in subscriber.topics]
        if not subscribers:
            continue
        length, extra = divmod(topic.partition_count, len(subscribers))
        first = 0
        for number, subscriber in enumerate(subscribers):
            end = first + length + (number < extra)
            assignments[subscriber.id].update(
                TopicIdPartition(topic.id, index) for index in range(first, end)
            )
            first = end
    return {member_id: frozenset(assigned) for member_id, assigned in assignments.items()}


def _sort_key(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by instance id, so that the order survives restarts."""
    return (subscriber.instance_id is None, subscriber.instance_id or subscriber.id)
