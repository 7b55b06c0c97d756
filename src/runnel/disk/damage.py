"""Whether a failed read shows that a log is damaged, or only that this attempt failed."""

from errno import EBADMSG, EIO, ENOENT

from runnel.batch.errors import CorruptBatch
from runnel.disk.segments import IndexDiscarded
from runnel.model.errors import DamagedLog, StorageFailed

_DAMAGED = frozenset({EBADMSG, EIO, ENOENT})
"""A bad sector, a checksum of the file system, a segment that is missing. Other errors may pass."""


def is_damage(error: Exception) -> bool:
    """Are records corrupt, unreadable or missing?"""
    if isinstance(error, OSError):
        return error.errno in _DAMAGED
    return isinstance(error, CorruptBatch) and not isinstance(error, IndexDiscarded)


def read_failure(folder: str, error: Exception) -> StorageFailed:
    """The error to raise if a read of a log failed with this one."""
    return (DamagedLog if is_damage(error) else StorageFailed)(f"{folder}: {error}")
