"""Producers as their batches in one partition show them: is a batch the next, one again, or odd?

same epoch, next sequence      as it should be; sequences wrap from 2³¹-1 to 0
same epoch, one written before a duplicate: the broker should have answered, not written
same epoch, further on         a gap: compaction removes batches, and a producer long unseen is forgotten
newer epoch                    starts over
older epoch                    a fenced producer came through
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from runnel.batch.header import SEQUENCE_MAX

BATCHES_REMEMBERED = 1024
"""Of one producer, to report at which offset a duplicate was written first."""
PRODUCERS_REMEMBERED = 100_000
"""The one unseen for longest is forgotten first: a broker forgets it, too."""
_SPAN_MAX = 2**30
"""Sequences wrap: further back than this, a number may well be used a second time."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Sequences that this producer had written before."""

    first_offset: int | None
    """Where it was written first, if that is remembered."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Not the next sequence of this producer, and none that is known to be written."""

    sequences: int
    """How far ahead, or back if negative."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A batch of an older epoch, behind one of a newer."""

    newer_epoch: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int | None
    """None where any may come."""
    span: int = 0
    """How many sequences back from `next_sequence` this epoch is known to reach."""
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    """(first sequence, number of sequences, first offset), oldest first"""


class Sequences:
    """All producers of one partition, in the order of its log."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def saw(
        self, producer_id: int, epoch: int, sequence: int, count: int, offset: int
    ) -> Repeat | Jump | Fenced | None:
        """A batch with `count` sequences from this one on is stored at this offset."""
        producer = self._producers.get(producer_id)
        if producer is None or epoch > producer.epoch:
            producer = self._producers[producer_id] = _Producer(epoch, None)
            if len(self._producers) > PRODUCERS_REMEMBERED:
                self._producers.popitem(last=False)
        elif epoch < producer.epoch:
            return Fenced(producer.epoch)
        self._producers.move_to_end(producer_id)
        next_sequence = sequence if producer.next_sequence is None else producer.next_sequence
        back = (next_sequence - sequence) & SEQUENCE_MAX
        if 0 < back <= producer.span:
            return Repeat(_first_offset(producer, sequence))
        ahead = (sequence - next_sequence) & SEQUENCE_MAX
        is_back = 0 < back < _SPAN_MAX
        producer.batches.append((sequence, count, offset))
        producer.next_sequence = (sequence + count) & SEQUENCE_MAX
        producer.span = min(count if is_back else producer.span + ahead + count, _SPAN_MAX)
        return Jump(-back if is_back else ahead) if back else None

    def ended(self, producer_id: int, epoch: int) -> None:
        """A transaction of this producer ended; with a newer epoch, its sequences start over."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch > producer.epoch:
            self._producers[producer_id] = _Producer(epoch, None)


def _first_offset(producer: _Producer, sequence: int) -> int | None:
    for first, count, offset in producer.batches:
        place = (sequence - first) & SEQUENCE_MAX
        if place < count:
            return offset + place
    return None
