"""Proposes the number of partitions of topics."""

import math
from dataclasses import dataclass

from runnel.visual.units import Unit

BYTES_PER_S_TARGET = 5 * 1024 * 1024
"""Target throughput of one partition at the peak, so that a single consumer can keep up and catch up."""
HEADROOM = 2.0
"""For growth, and for consumers that must catch up."""
SKEW_NOTABLE = 2.0
"""Largest partition relative to the average."""
RECORDS_SIGNIFICANT = 20
"""Records per partition below which skew is not significant."""
PARTITION_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a topic."""

    topic: str
    partitions: int
    peak_bytes_per_s: float
    skew: float
    """Bytes of the largest partition relative to the average."""
    top_key_share: float
    """Share of records with the most frequent key; 0 without keys."""
    keyed_share: float
    readers: int
    """Members of the largest group of the topic, including idle ones."""
    records: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed number of partitions, with the reason."""

    topic: str
    partitions: int
    issue: str
    """The issue in a few words; empty if there is none."""
    reason: str

    @property
    def level(self) -> str:
        return "warn" if self.issue else "good"


def propose(load: Load) -> Proposal:
    """Propose a number of partitions; never fewer than exist, as partitions cannot be removed."""
    by_traffic = math.ceil(load.peak_bytes_per_s * HEADROOM / BYTES_PER_S_TARGET)
    needed = max(1, by_traffic, load.readers)
    peak = f"{Unit.BYTES_PER_S.text(load.peak_bytes_per_s)} at the peak"
    if needed <= load.partitions:
        verb = "is" if load.partitions == 1 else "are"
        kept = f"{load.partitions} {verb} enough for {peak}"
        advice = _about_skew(load)
        return Proposal(load.topic, load.partitions, "uneven" if advice else "", kept + advice)
    proposed = next((number for number in PARTITION_COUNTS if number >= needed), needed)
    if by_traffic >= load.readers:
        each = f"{BYTES_PER_S_TARGET >> 20} MiB/s for each partition"
        why = f"{peak}, twice that for headroom, at {each}"
    else:
        idle = load.readers - load.partitions
        why = f"{load.readers} members consume it, {idle} of them {'is' if idle == 1 else 'are'} idle"
    moved = (
        "; keys will map to other partitions, so let consumers catch up first"
        if load.keyed_share > 0.5
        else ""
    )
    return Proposal(load.topic, proposed, "too few partitions", why + moved + _about_skew(load))


def _about_skew(load: Load) -> str:
    if (
        load.partitions < 2
        or load.skew < SKEW_NOTABLE
        or load.records < RECORDS_SIGNIFICANT * load.partitions
    ):
        return ""
    skew = f"; the largest partition has {load.skew:.1f} times the average"
    # One key with more records than an average partition explains the skew.
    if load.top_key_share * load.partitions >= 1:
        share = f"{load.top_key_share:.0%} of the records"
        return f"{skew}: one key has {share}, and a key cannot be split over partitions"
    return f"{skew}: check the choice of keys"


def skew_of(sizes: list[float]) -> float:
    """The maximum relative to the average; 1 for an empty topic."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else 1.0
