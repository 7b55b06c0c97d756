"""Checks the sequence numbers of producers in one partition.

same epoch, next sequence      in order; sequences wrap from 2³¹-1 to 0
same epoch, earlier sequence   a duplicate that the broker should not have appended
same epoch, later sequence     a gap: compaction removes batches, and producer ids expire
newer epoch                    starts over
older epoch                    a write of a fenced producer
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from runnel.batch.header import SEQUENCE_MAX

BATCHES_TRACKED_MAX = 1024
"""Per producer, to report the original offset of a duplicate."""
PRODUCERS_TRACKED_MAX = 100_000
"""The least recently seen producer is dropped first."""
_SPAN_MAX = 2**30
"""ProducerSequences wrap: further back than this, a number may be reused."""


@dataclass(frozen=True, slots=True)
class DuplicateSequence:
    """ProducerSequences that this producer has already written."""

    first_offset: int | None
    """The original offset, if known."""


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Not the next sequence of this producer, and not a known duplicate."""

    sequences: int
    """How far ahead, or back if negative."""


@dataclass(frozen=True, slots=True)
class StaleEpoch:
    """A batch of an older epoch after one of a newer epoch."""

    newer_epoch: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int | None
    """None if any sequence may follow."""
    span: int = 0
    """The number of known sequences of this epoch before `next_sequence`."""
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_TRACKED_MAX))
    """(first sequence, number of sequences, first offset), oldest first"""


class ProducerSequences:
    """All producers of one partition, in the order of its log."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def add(
        self, producer_id: int, epoch: int, sequence: int, count: int, offset: int
    ) -> DuplicateSequence | SequenceGap | StaleEpoch | None:
        """Add a batch of `count` sequences at this offset."""
        producer = self._producers.get(producer_id)
        if producer is None or epoch > producer.epoch:
            producer = self._producers[producer_id] = _Producer(epoch, None)
            if len(self._producers) > PRODUCERS_TRACKED_MAX:
                self._producers.popitem(last=False)
        elif epoch < producer.epoch:
            return StaleEpoch(producer.epoch)
        self._producers.move_to_end(producer_id)
        next_sequence = sequence if producer.next_sequence is None else producer.next_sequence
        back = (next_sequence - sequence) & SEQUENCE_MAX
        if 0 < back <= producer.span:
            return DuplicateSequence(_first_offset(producer, sequence))
        ahead = (sequence - next_sequence) & SEQUENCE_MAX
        is_back = 0 < back < _SPAN_MAX
        producer.batches.append((sequence, count, offset))
        producer.next_sequence = (sequence + count) & SEQUENCE_MAX
        producer.span = min(count if is_back else producer.span + ahead + count, _SPAN_MAX)
        return SequenceGap(-back if is_back else ahead) if back else None

    def end_transaction(self, producer_id: int, epoch: int) -> None:
        """A transaction of this producer has ended; with a newer epoch, its sequences start over."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch > producer.epoch:
            self._producers[producer_id] = _Producer(epoch, None)


def _first_offset(producer: _Producer, sequence: int) -> int | None:
    for first, count, offset in producer.batches:
        index = (sequence - first) & SEQUENCE_MAX
        if index < count:
            return offset + index
    return None
