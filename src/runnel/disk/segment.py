"""One segment file, and what is known of it in memory."""

from typing import TYPE_CHECKING

from runnel.batch.header import NO_TIMESTAMP, BatchHeader
from runnel.log.aborted import AbortedTransaction
from runnel.log.index import OffsetIndex, TimeIndex
from runnel.ports.files import File

if TYPE_CHECKING:
    from runnel.disk.batch_cipher import BatchCipher

UNKNOWN_TIMESTAMP = -2
"""The segment's largest timestamp is in its time index, which has not been read yet."""


class Segment:
    """A run of batches in one file, with sparse indexes that are in memory only while needed."""

    __slots__ = (
        "aborted",
        "aborted_saved",
        "base_offset",
        "bytes_since_entry",
        "cipher",
        "file",
        "first_timestamp",
        "has_index_files",
        "is_encrypted",
        "is_pinned",
        "is_warm",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "size_bytes",
        "times",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        """The offset after its last batch."""
        self.size_bytes = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        """The last offset of the first batch that has the largest timestamp."""
        self.bytes_since_entry = 0
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.aborted: list[AbortedTransaction] | None = None
        """The transactions whose abort marker is in it, if that is known."""
        self.aborted_saved = -1
        """How many of them the file beside it holds, if that is known and it holds no others."""
        self.has_index_files = False
        """Do the index files have the same entries as the indexes in memory?"""
        self.is_encrypted = False
        """Does it have a key file? Then all its batches are encrypted."""
        self.cipher: BatchCipher | None = None
        """Loaded with the file of an encrypted segment, and kept."""
        self.is_pinned = False
        """Must its file stay open and its indexes in memory, because a swap replaces the files by name?"""
        self.file: File | None = None
        self.is_warm = False
        """Was it used since the cache of open files last checked it?"""

    @property
    def index_bytes(self) -> int:
        """What the indexes take in memory, roughly."""
        return 8 * len(self.offsets or ()) + 12 * len(self.times or ()) + 200 * len(self.aborted or ())

    def start_indexes(self) -> None:
        """Begin with empty indexes, to be filled batch by batch."""
        self.offsets = OffsetIndex(self.base_offset)
        self.times = TimeIndex(self.base_offset)
        self.bytes_since_entry = 0
        self.aborted = []
        self.aborted_saved = -1

    def appended(self, header: BatchHeader, interval_bytes: int) -> bool:
        """The batch of this header was appended to the file; did the indexes grow?

        They must be in memory.
        """
        return self.extended(header.size_bytes, header.last_offset, header.max_timestamp, interval_bytes)

    def extended(self, size: int, last_offset: int, timestamp: int, interval_bytes: int) -> bool:
        """A batch of this size, last offset and largest timestamp was appended; did the indexes grow?"""
        if self.size_bytes == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        is_indexed = self.bytes_since_entry > interval_bytes
        if is_indexed:
            assert self.offsets is not None and self.times is not None
            self.offsets.append(last_offset, self.size_bytes)
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        self.has_index_files = False
        self.bytes_since_entry += size
        self.size_bytes += size
        self.next_offset = last_offset + 1
        return is_indexed

    def close_time_index(self) -> None:
        """Let the time index end with the segment's largest timestamp, which retention needs."""
        if self.times is not None and self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset)
