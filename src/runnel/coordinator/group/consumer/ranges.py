"""The range assignor: of each topic, everyone gets one stretch of partitions.

Topics with as many partitions and the same members are cut alike, so that one member gets partition n of all
of them: what belongs together by key stays together.
"""

from runnel.coordinator.group.consumer.assignor import GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition


def assign_ranges(spec: GroupSpec) -> dict[str, Partitions]:
    """Cut every topic into stretches, one for each member that wants it; the first get the longer ones."""
    assignments: dict[str, set[TopicIdPartition]] = {subscriber.id: set() for subscriber in spec.subscribers}
    in_order = sorted(spec.subscribers, key=_sort_key)
    for topic in spec.topics.values():
        subscribers = [subscriber for subscriber in in_order if topic.id in subscriber.topics]
        if not subscribers:
            continue
        length, longer = divmod(topic.partition_count, len(subscribers))
        first = 0
        for number, subscriber in enumerate(subscribers):
            behind = first + length + (number < longer)
            assignments[subscriber.id].update(
                TopicIdPartition(topic.id, index) for index in range(first, behind)
            )
            first = behind
    return {member_id: frozenset(assigned) for member_id, assigned in assignments.items()}


def _sort_key(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by a name that outlives restarts; so the order is the same for all topics."""
    return (subscriber.instance_id is None, subscriber.instance_id or subscriber.id)
