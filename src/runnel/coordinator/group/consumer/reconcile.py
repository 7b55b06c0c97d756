"""One reconciliation step of a member: revoke partitions first, then assign free ones."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.member import ConsumerMember, MemberState
from runnel.model.errors import ApiError, ErrorCode


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    """The member after its next reconciliation step; unchanged if there is none. Raises ApiError.

    `owned` is what the member reports as owned; None if omitted. `is_free` returns whether no other member
    owns a partition.
    """
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.revoking, owned):
            return member
        # The revocation is complete: the member advances from the epoch in which it was requested.
        epoch += 1
    elif member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the assignment of member {member.id} is unknown; it must abandon its partitions and rejoin",
        )
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
    if revoking and _still_owns(revoking, owned):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoking)
    missing = [partition for partition in target if partition not in kept]
    free = {partition: target_epoch for partition in missing if is_free(partition)}
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, target_epoch, kept | free, {})


def _still_owns(revoking: Mapping[TopicIdPartition, int], owned: Partitions | None) -> bool:
    return owned is None or any(partition in owned for partition in revoking)


def _moved(
    member: ConsumerMember,
    state: MemberState,
    epoch: int,
    assigned: dict[TopicIdPartition, int],
    revoking: dict[TopicIdPartition, int],
) -> ConsumerMember:
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(
        member, state=state, epoch=epoch, previous_epoch=previous, assigned=assigned, revoking=revoking
    )
