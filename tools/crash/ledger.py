"""Everything that was acknowledged to producers or returned to readers, compared with the log.

A record carries its own identity: its producer and its sequence number. One pass over the log therefore
distinguishes lost, changed, duplicated and reordered records.
"""

import hashlib
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

Partition = tuple[str, int]
"""A partition: topic and number."""

STAMP = struct.Struct(">IQ")
VIOLATIONS_KEPT_MAX = 50


class CorruptRecord(Exception):
    """The bytes of a record are not the ones that were sent."""


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The producer of a record, and its number there."""

    producer: int
    sequence: int


def payload(stamp: Stamp, size_bytes: int) -> bytes:
    """The record's value: its stamp, and bytes derived from it."""
    head = STAMP.pack(stamp.producer, stamp.sequence)
    seed = hashlib.blake2b(head, digest_size=32).digest()
    return head + (seed * (size_bytes // 32 + 1))[:size_bytes]


def stamp_of(value: bytes) -> Stamp:
    """The stamp of a value; raises CorruptRecord if any byte differs from what was sent."""
    if len(value) < STAMP.size:
        raise CorruptRecord(f"{len(value)} bytes are too few")
    stamp = Stamp(*STAMP.unpack_from(value))
    if payload(stamp, len(value) - STAMP.size) != value:
        raise CorruptRecord(f"the bytes of {stamp} differ from those sent")
    return stamp


@dataclass(slots=True)
class Ledger:
    """Everything that was acknowledged or read, and every violation that was found."""

    idempotent: frozenset[int]
    acknowledged: dict[Partition, dict[int, Stamp]] = field(default_factory=lambda: defaultdict(dict))
    acknowledged_anywhere: dict[Partition, set[Stamp]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[Partition, dict[int, Stamp]] = field(default_factory=lambda: defaultdict(dict))
    violations: list[str] = field(default_factory=list)

    @property
    def acknowledged_count(self) -> int:
        return sum(len(records) for records in self.acknowledged.values())

    def fail(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(text)

    def acknowledge(self, partition: Partition, offset: int | None, stamp: Stamp) -> None:
        """A record was acknowledged at `offset`; None or a negative one means that the offset is unknown."""
        if offset is None or offset < 0:
            self.acknowledged_anywhere[partition].add(stamp)
            return
        other = self.acknowledged[partition].setdefault(offset, stamp)
        if other != stamp:
            self.fail(f"{partition} offset {offset} was acknowledged for {other} and for {stamp}")

    def record_read(self, partition: Partition, offset: int, stamp: Stamp) -> None:
        """A reader received this record."""
        other = self.seen[partition].setdefault(offset, stamp)
        if other != stamp:
            self.fail(f"{partition} offset {offset} was read as {other} and as {stamp}")

    def verify(self, partition: Partition, log: list[tuple[int, Stamp]]) -> None:
        """Compare a partition with all that was acknowledged and read."""
        found = dict(log)
        for promise, records in (("acknowledged", self.acknowledged), ("read", self.seen)):
            for offset, stamp in records[partition].items():
                if offset not in found:
                    self.fail(f"lost: {partition} offset {offset}, {stamp}, was {promise} and is missing")
                elif found[offset] != stamp:
                    self.fail(
                        f"changed: {partition} offset {offset} was {promise} as {stamp}, is {found[offset]}"
                    )
        for stamp in self.acknowledged_anywhere[partition] - set(found.values()):
            self.fail(f"lost: {partition} {stamp} was acknowledged without an offset and is missing")
        self._verify_offsets(partition, [offset for offset, _ in log])
        self._verify_order(partition, log)

    def _verify_offsets(self, partition: Partition, offsets: list[int]) -> None:
        for before, after in pairwise(offsets):
            if after != before + 1:
                self.fail(f"gap: {partition} goes from offset {before} to {after}")

    def _verify_order(self, partition: Partition, log: Iterable[tuple[int, Stamp]]) -> None:
        newest: dict[int, Stamp] = {}
        for offset, stamp in log:
            # Without idempotence, a record whose response was lost may be anywhere; others may not.
            if stamp.producer not in self.idempotent and self.acknowledged[partition].get(offset) != stamp:
                continue
            before = newest.get(stamp.producer)
            if before is not None and stamp == before:
                self.fail(f"duplicate: {partition} holds {stamp} again at offset {offset}")
            elif before is not None and stamp < before:
                self.fail(f"reordered: {partition} offset {offset} holds {stamp} after {before}")
            else:
                newest[stamp.producer] = stamp
