"""What producers were promised and readers were shown, and whether the log still says the same.

A record carries its own identity: which producer sent it, and as which number. So one pass over the log can
tell lost, changed, doubled and reordered records apart.
"""

import hashlib
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

Place = tuple[str, int]
"""A partition: topic and number."""

STAMP = struct.Struct(">IQ")
VIOLATIONS_KEPT_MAX = 50


class Changed(Exception):
    """The bytes of a record are not the ones that were sent."""


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """Who sent a record, and as which number."""

    producer: int
    sequence: int


def payload(stamp: Stamp, size_bytes: int) -> bytes:
    """The record's value: its stamp, and bytes that only this stamp has."""
    head = STAMP.pack(stamp.producer, stamp.sequence)
    seed = hashlib.blake2b(head, digest_size=32).digest()
    return head + (seed * (size_bytes // 32 + 1))[:size_bytes]


def stamp_of(value: bytes) -> Stamp:
    """The stamp behind a value; Changed if a single byte is not as it was sent."""
    if len(value) < STAMP.size:
        raise Changed(f"{len(value)} bytes are too few")
    stamp = Stamp(*STAMP.unpack_from(value))
    if payload(stamp, len(value) - STAMP.size) != value:
        raise Changed(f"the bytes of {stamp} were not sent by anyone")
    return stamp


@dataclass(slots=True)
class Ledger:
    """Everything that was acknowledged or read, and every way in which the broker broke its word."""

    idempotent: frozenset[int]
    acknowledged: dict[Place, dict[int, Stamp]] = field(default_factory=lambda: defaultdict(dict))
    acknowledged_anywhere: dict[Place, set[Stamp]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[Place, dict[int, Stamp]] = field(default_factory=lambda: defaultdict(dict))
    violations: list[str] = field(default_factory=list)

    @property
    def acknowledged_count(self) -> int:
        return sum(len(records) for records in self.acknowledged.values())

    def accuse(self, text: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT_MAX:
            self.violations.append(text)

    def acknowledge(self, place: Place, offset: int, stamp: Stamp) -> None:
        """A producer was told that its record stands at `offset` (below 0: somewhere)."""
        if offset < 0:
            self.acknowledged_anywhere[place].add(stamp)
            return
        other = self.acknowledged[place].setdefault(offset, stamp)
        if other != stamp:
            self.accuse(f"{place} offset {offset} was promised to {other} and to {stamp}")

    def show(self, place: Place, offset: int, stamp: Stamp) -> None:
        """A reader was given this record."""
        other = self.seen[place].setdefault(offset, stamp)
        if other != stamp:
            self.accuse(f"{place} offset {offset} was read as {other} and as {stamp}")

    def settle(self, place: Place, log: list[tuple[int, Stamp]]) -> None:
        """Compare what stands in a partition now with all that was promised and shown."""
        found = dict(log)
        for promise, records in (("acknowledged", self.acknowledged), ("read", self.seen)):
            for offset, stamp in records[place].items():
                if offset not in found:
                    self.accuse(f"lost: {place} offset {offset}, {stamp}, was {promise} and is gone")
                elif found[offset] != stamp:
                    self.accuse(
                        f"changed: {place} offset {offset} was {promise} as {stamp}, is {found[offset]}"
                    )
        for stamp in self.acknowledged_anywhere[place] - set(found.values()):
            self.accuse(f"lost: {place} {stamp} was acknowledged without an offset and is nowhere")
        self._settle_offsets(place, [offset for offset, _ in log])
        self._settle_order(place, log)

    def _settle_offsets(self, place: Place, offsets: list[int]) -> None:
        for before, after in pairwise(offsets):
            if after != before + 1:
                self.accuse(f"gap: {place} goes from offset {before} to {after}")

    def _settle_order(self, place: Place, log: Iterable[tuple[int, Stamp]]) -> None:
        newest: dict[int, Stamp] = {}
        for offset, stamp in log:
            # Without idempotence, a record whose answer was lost may stand anywhere; others may not.
            if stamp.producer not in self.idempotent and self.acknowledged[place].get(offset) != stamp:
                continue
            before = newest.get(stamp.producer)
            if before is not None and stamp == before:
                self.accuse(f"doubled: {place} holds {stamp} again at offset {offset}")
            elif before is not None and stamp < before:
                self.accuse(f"reordered: {place} offset {offset} holds {stamp} after {before}")
            else:
                newest[stamp.producer] = stamp
