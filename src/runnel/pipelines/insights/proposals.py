"""How many partitions a topic should have, and why."""

import math
from dataclasses import dataclass

from runnel.pipelines.report.units import Unit

BYTES_PER_S_TARGET = 5 * 1024 * 1024
"""What one partition should carry in its busiest minute, so that one consumer keeps up and can catch up."""
HEADROOM = 2.0
"""A topic grows; and after a stop its readers must go faster than its writers."""
SKEW_NOTABLE = 2.0
"""The fullest partition has so many times the average."""
RECORDS_TELLING = 20
"""So many for each partition, or where they lie is chance."""
NICE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True, slots=True)
class Load:
    """A topic as its traffic shows it."""

    topic: str
    partitions: int
    peak_bytes_per_s: float
    skew: float
    """Bytes of the fullest partition over the average, 1 if all are alike."""
    top_key_share: float
    """How much of the records has the most frequent key, 0 if none has one."""
    keyed_share: float
    readers: int
    """Members of the largest group that reads it, those included that have nothing to read."""
    records: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A number of partitions, with its reasons."""

    topic: str
    partitions: int
    issue: str
    """What should change, in a few words; empty if nothing."""
    reason: str

    @property
    def level(self) -> str:
        return "warn" if self.issue else "good"


def propose(load: Load) -> Proposal:
    """The number of partitions that suits a load; never fewer than there are, as none can be taken away."""
    by_traffic = math.ceil(load.peak_bytes_per_s * HEADROOM / BYTES_PER_S_TARGET)
    needed = max(1, by_traffic, load.readers)
    peak = f"{Unit.BYTES_PER_S.text(load.peak_bytes_per_s)} at the peak"
    if needed <= load.partitions:
        verb = "is" if load.partitions == 1 else "are"
        kept = f"{load.partitions} {verb} enough for {peak}"
        advice = _about_skew(load)
        return Proposal(load.topic, load.partitions, "uneven" if advice else "", kept + advice)
    proposed = next((number for number in NICE if number >= needed), needed)
    if by_traffic >= load.readers:
        each = f"{BYTES_PER_S_TARGET >> 20} MiB/s for each partition"
        why = f"{peak}, twice that for headroom, at {each}"
    else:
        idle = load.readers - load.partitions
        why = f"{load.readers} members read it, {idle} of them {'has' if idle == 1 else 'have'} nothing to do"
    moved = (
        "; keys will move to other partitions, so let readers finish first" if load.keyed_share > 0.5 else ""
    )
    return Proposal(load.topic, proposed, "too few partitions", why + moved + _about_skew(load))


def _about_skew(load: Load) -> str:
    if load.partitions < 2 or load.skew < SKEW_NOTABLE or load.records < RECORDS_TELLING * load.partitions:
        return ""
    fullest = f"; the fullest partition has {load.skew:.1f} times the average"
    # A key that alone has more than an average partition holds is what makes it uneven.
    if load.top_key_share * load.partitions >= 1:
        share = f"{load.top_key_share:.0%} of the records"
        return f"{fullest}: one key has {share}, and no number of partitions spreads a key"
    return f"{fullest}: look at how keys are chosen"


def skew_of(sizes: list[float]) -> float:
    """The largest over the average, 1 where there is nothing."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else 1.0
