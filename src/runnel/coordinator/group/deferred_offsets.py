"""Offset commits of a log that is being loaded, undecoded, until the last one of each offset is known.

A log holds many commits of the same offset, of which the last one counts. So while loading they are only
noted, by their encoded keys, and decoded when the log was read completely. Tombstones, and commits within
transactions, are replayed in order; the offset of a commit's record decides which one is later.
"""

from itertools import islice
from struct import Struct as Layout

from runnel.coordinator.group.offset_store import CommittedOffset, OffsetStore
from runnel.model.ids import NO_ID
from runnel.schemas.group import OffsetCommitKey, OffsetCommitValue
from runnel.wire import MalformedMessage, decode

_KIND = OffsetCommitKey.api_key.to_bytes(2, "big")
_PARTITION_BYTES = 4
_read_partition = Layout(">i").unpack_from
_read_version = Layout(">h").unpack_from
_PLAIN = Layout(">hqihq")
"""A commit of version 3 without metadata."""
_WITH_TOPIC_ID = Layout(">hqiBqBBB16s")
"""A commit of version 4 without metadata and with a topic id, its only tagged field."""


class DeferredOffsets:
    """The last offset commits outside of transactions, by encoded key."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._latest: dict[bytes, tuple[int, bytes]] = {}
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic of encoded keys without their partitions."""
        self.replayed: set[str] = set()
        """The groups of the commits that the last call of `replay` replayed."""

    def defer(self, key: bytes, value: bytes | None, offset: int) -> bool:
        """Note a commit; False for a tombstone or another record, which must be replayed now."""
        if not key.startswith(_KIND):
            return False
        if value is None:
            self._latest.pop(key, None)
            return False
        self._latest[key] = offset, value
        return True

    def replay(self, count: int) -> bool:
        """Replay at most `count` commits; returns whether there are more. Raises MalformedMessage."""
        latest = self._latest
        self.replayed.clear()
        topics: dict[bytes, dict[int, CommittedOffset]] = {}
        for key in list(islice(latest, count)):
            record_offset, encoded = latest.pop(key)
            committed = read_value(encoded)
            committed.record_offset = record_offset
            # Everything but the partition, which comes last.
            prefix = key[:-_PARTITION_BYTES]
            partitions = topics.get(prefix)
            if partitions is None:
                group, topic = self._names.get(prefix) or self._read_names(key, prefix)
                partitions = topics[prefix] = self._store.topic_of(group, topic)
                self.replayed.add(group)
            (partition,) = _read_partition(key, len(prefix))
            known = partitions.get(partition)
            if known is None or known.record_offset < record_offset:
                partitions[partition] = committed
        if not latest:
            self._names.clear()
        return bool(latest)

    def _read_names(self, key: bytes, prefix: bytes) -> tuple[str, str]:
        names = decode(OffsetCommitKey, 0, key, len(_KIND))
        self._names[prefix] = names.group, names.topic
        return names.group, names.topic


def read_value(encoded: bytes) -> CommittedOffset:
    """Decode a commit. Raises MalformedMessage. Nearly all have one of two layouts of fixed size."""
    if len(encoded) == _WITH_TOPIC_ID.size:
        version, offset, epoch, length, ms, tags, tag, size, topic_id = _WITH_TOPIC_ID.unpack(encoded)
        if (version, length, tags, tag, size) == (4, 1, 1, 0, 16):
            return CommittedOffset(offset, epoch, "", ms, -1, topic_id)
    elif len(encoded) == _PLAIN.size:
        version, offset, epoch, length, ms = _PLAIN.unpack(encoded)
        if (version, length) == (3, 0):
            return CommittedOffset(offset, epoch, "", ms, -1, NO_ID)
    return _read_any_value(encoded)


def _read_any_value(encoded: bytes) -> CommittedOffset:
    if len(encoded) < 2:
        raise MalformedMessage("an offset commit is too short for its version")
    (version,) = _read_version(encoded)
    if version not in OffsetCommitValue.versions:
        raise MalformedMessage(f"an offset commit has the unknown version {version}")
    value = decode(OffsetCommitValue, version, encoded, 2)
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
