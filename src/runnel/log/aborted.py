"""Aborted transactions of a segment, which read_committed consumers skip.

A file of 34-byte entries in Kafka's format, in the order in which the transactions ended:

    version 2 · producer id 8 · first offset 8 · last offset 8 (the marker) · last stable offset 8

The last stable offset is that after this marker: every transaction that began below it has ended. A search
for transactions below it can therefore skip later entries.
"""

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct, iter_unpack
from typing import NamedTuple

ENTRY_BYTES = 34
VERSION = 0

ABORTED_LAYOUT = ">hqqqq"
_ENTRY = Struct(ABORTED_LAYOUT)


class DamagedAborted(Exception):
    """The transaction index is damaged; it is rebuilt from the batches of the segment."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the offsets within which transactional records of the producer are aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of its marker."""
    last_stable_offset: int
    """All transactions that begin below this offset had ended."""


def encode_aborted(entries: Sequence[AbortedTransaction]) -> bytes:
    """Encode the transaction index of a segment."""
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)


def decode_aborted(data: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Decode a transaction index; DamagedAborted unless it ascends and ends within the segment."""
    if len(data) % ENTRY_BYTES:
        raise DamagedAborted(f"{len(data)} bytes are no whole number of entries")
    entries: list[AbortedTransaction] = []
    ended_before = base_offset - 1
    for version, *columns in iter_unpack(ABORTED_LAYOUT, data):
        entry = AbortedTransaction(*columns)
        if version != VERSION:
            raise DamagedAborted(f"there is no version {version}")
        if not ended_before < entry.last_offset < end_offset or entry.first_offset >= entry.last_offset:
            raise DamagedAborted(f"a transaction ends at {entry.last_offset} after {ended_before}")
        ended_before = entry.last_offset
        entries.append(entry)
    return entries


def collect_aborted(
    entries: Sequence[AbortedTransaction],
    first_offset: int,
    end_offset: int,
    found: list[AbortedTransaction],
) -> bool:
    """Add the entries that overlap [`first_offset`, `end_offset`); True if no later entry can."""
    for entry in entries[bisect_left(entries, first_offset, key=_last_offset) :]:
        if entry.first_offset < end_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return True
    return False


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset
