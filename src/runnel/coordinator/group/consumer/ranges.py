"""The range assignor: of each topic, everyone gets one stretch of partitions.

Topics with as many partitions and the same members are cut alike, so that one member gets partition n of all
of them: what belongs together by key stays together.
"""

from runnel.coordinator.group.consumer.assignor import Question, Subscriber
from runnel.coordinator.group.consumer.cluster import Partition, Partitions


def assign_ranges(question: Question) -> dict[str, Partitions]:
    """Cut every topic into stretches, one for each member that wants it; the first get the longer ones."""
    shares: dict[str, set[Partition]] = {subscriber.id: set() for subscriber in question.subscribers}
    in_order = sorted(question.subscribers, key=_place)
    for topic in question.topics.values():
        wanting = [subscriber for subscriber in in_order if topic.id in subscriber.topics]
        if not wanting:
            continue
        length, longer = divmod(topic.partition_count, len(wanting))
        first = 0
        for number, subscriber in enumerate(wanting):
            behind = first + length + (number < longer)
            shares[subscriber.id].update(Partition(topic.id, index) for index in range(first, behind))
            first = behind
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by a name that outlives restarts; so the order is the same for all topics."""
    return (subscriber.instance_id is None, subscriber.instance_id or subscriber.id)
