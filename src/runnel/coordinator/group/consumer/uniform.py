"""The uniform assignor: everyone gets as many partitions as anyone else, and what can stay stays.

A member keeps what it has up to its fair share. Only the rest, and what nobody has, is given out: to members
whose rack holds a copy, then to whoever has least. Where members want different topics, a fair share cannot
be told beforehand; there, partitions move one by one from those who have more to those who have less, for as
long as that makes the shares more alike.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from runnel.coordinator.group.consumer.assignor import Question, Subscriber
from runnel.coordinator.group.consumer.cluster import Partition, Partitions


def assign_uniformly(question: Question) -> dict[str, Partitions]:
    """Assign so that the numbers of partitions are as alike as can be, with the fewest moves."""
    wanted = question.wanted()
    shares = _valid_shares(question, wanted)
    if question.is_uniform:
        _cut_to_fair_shares(question, shares, len(wanted))
    held = set[Partition]().union(*shares.values())
    _give_out(question, shares, [partition for partition in wanted if partition not in held])
    if not question.is_uniform:
        _level(question, shares)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _valid_shares(question: Question, wanted: Iterable[Partition]) -> dict[str, set[Partition]]:
    """What members have, as far as it exists and they still want it."""
    taken = set[Partition]()
    existing = set(wanted)
    shares: dict[str, set[Partition]] = {}
    for subscriber in question.subscribers:
        share = {
            partition
            for partition in subscriber.has
            if partition.topic_id in subscriber.topics and partition in existing and partition not in taken
        }
        taken |= share
        shares[subscriber.id] = share
    return shares


def _cut_to_fair_shares(question: Question, shares: dict[str, set[Partition]], count: int) -> None:
    if not shares:
        return
    fair, larger = divmod(count, len(shares))
    # Those who have most are the ones for whom a larger share saves a move.
    for subscriber in sorted(question.subscribers, key=lambda subscriber: -len(shares[subscriber.id])):
        share = shares[subscriber.id]
        limit = fair + (larger > 0)
        if len(share) > fair:
            larger -= larger > 0
        if len(share) > limit:
            kept = sorted(share, key=lambda held: (not question.is_near(subscriber, held), held))
            shares[subscriber.id] = set(kept[:limit])


def _give_out(question: Question, shares: dict[str, set[Partition]], free: list[Partition]) -> None:
    """Each free partition goes to a member that has least, near ones first."""
    if not free:
        return
    near = [subscriber for subscriber in question.subscribers if subscriber.rack is not None]
    rest = free
    if near and question.is_uniform:
        rest = _give_to_near(question, shares, near, free)
    queues: dict[bytes, list[tuple[int, int]]] = {}
    wanting = _wanting(question)
    # Partitions that few may have come first, so that the others can make up for them.
    for partition in sorted(rest, key=lambda partition: len(wanting[partition.topic_id])):
        members = wanting[partition.topic_id]
        queue = queues.get(partition.topic_id)
        if queue is None:
            queue = queues[partition.topic_id] = [
                (len(shares[member.id]), place) for place, member in enumerate(members)
            ]
            heapify(queue)
        while True:
            size, place = heappop(queue)
            member = members[place]
            if size == len(shares[member.id]):
                break
            # It got more by way of another topic since it stood here.
            heappush(queue, (len(shares[member.id]), place))
        shares[member.id].add(partition)
        heappush(queue, (size + 1, place))


def _give_to_near(
    question: Question, shares: dict[str, set[Partition]], near: list[Subscriber], free: list[Partition]
) -> list[Partition]:
    """Give partitions to members in a rack that has them, up to fair shares; what is left over."""
    fair = (sum(map(len, shares.values())) + len(free)) // len(shares)
    rest = []
    for partition in free:
        fitting = [
            subscriber
            for subscriber in near
            if len(shares[subscriber.id]) < fair and question.is_near(subscriber, partition)
        ]
        if fitting:
            shares[min(fitting, key=lambda subscriber: len(shares[subscriber.id])).id].add(partition)
        else:
            rest.append(partition)
    return rest


def _wanting(question: Question) -> dict[bytes, list[Subscriber]]:
    wanting: dict[bytes, list[Subscriber]] = {}
    for subscriber in question.subscribers:
        for topic_id in subscriber.topics:
            wanting.setdefault(topic_id, []).append(subscriber)
    return wanting


def _level(question: Question, shares: dict[str, set[Partition]]) -> None:
    """Move partitions from larger shares to shares that are smaller by two or more, until none is."""
    wanting = _wanting(question)
    has_moved = True
    while has_moved:
        has_moved = False
        smallest = min(map(len, shares.values()))
        for giver in sorted(question.subscribers, key=lambda subscriber: -len(shares[subscriber.id])):
            if len(shares[giver.id]) > smallest + 1:
                has_moved |= _give_away(giver, wanting, shares)


def _give_away(
    giver: Subscriber, wanting: dict[bytes, list[Subscriber]], shares: dict[str, set[Partition]]
) -> bool:
    """Let a member pass on what others need more; whether it did."""
    share = shares[giver.id]
    size_before = len(share)
    for topic_id in sorted({partition.topic_id for partition in share}):
        for partition in sorted(held for held in share if held.topic_id == topic_id):
            taker = min(wanting[topic_id], key=lambda member: len(shares[member.id]))
            if len(shares[taker.id]) + 1 >= len(share):
                break
            share.discard(partition)
            shares[taker.id].add(partition)
    return len(share) < size_before
