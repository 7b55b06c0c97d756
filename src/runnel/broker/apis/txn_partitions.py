"""Partitions that a client cannot add to a transaction."""

from collections.abc import Collection, Iterable

from runnel.controller.image import MetadataImage
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

_NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


def refused_partitions(
    image: MetadataImage, partitions: Iterable[TopicPartition], denied: Collection[str]
) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition if one of them cannot be added; empty if all can.

    `denied` are topics that the client may not write to.
    """
    errors: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        if partition.topic in denied:
            errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(*partition) is None:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            errors[partition] = _NOT_ATTEMPTED
    return errors if any(error is not _NOT_ATTEMPTED for error in errors.values()) else {}
