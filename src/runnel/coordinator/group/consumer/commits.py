"""Validation of offset commits and fetches in consumer groups."""

from collections.abc import Iterable

from runnel.coordinator.group.consumer.cluster import TopicIdPartition
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import ConsumerMember
from runnel.coordinator.group.group import Committer
from runnel.model.errors import ApiError, ErrorCode

_MEMBER_EPOCHS_FROM = 9


def check_commit(group: ConsumerGroup, committer: Committer, partitions: Iterable[TopicIdPartition]) -> None:
    """Validate an offset commit for these partitions. Raises ApiError.

    A member may commit with an older epoch for partitions that it has owned continuously since then.
    """
    epoch = committer.generation
    if epoch < 0 and not group.members:
        return
    is_anonymous = epoch == -1 and not committer.member_id and committer.instance_id is None
    if committer.is_transactional and is_anonymous:
        return
    member = group.member(committer.member_id)
    is_old = not committer.is_transactional and committer.api_version < _MEMBER_EPOCHS_FROM
    if is_old and not member.is_classic:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "members of a consumer group must use OffsetCommit version 9 or later",
        )
    if epoch == member.epoch:
        return
    stale = _stale(member, epoch, ErrorCode.ILLEGAL_GENERATION if committer.is_transactional else None)
    if epoch > member.epoch:
        raise stale
    for partition in partitions:
        given = member.assignment_epoch_of(partition)
        if given is None or epoch < given:
            raise stale


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Validate an offset fetch; clients that are not members may always fetch. Raises ApiError."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _stale(member, epoch)


def _stale(member: ConsumerMember, epoch: int, error: ErrorCode | None = None) -> ApiError:
    if error is None:
        error = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return ApiError(error, f"member {member.id} is at epoch {member.epoch}, not {epoch}")
