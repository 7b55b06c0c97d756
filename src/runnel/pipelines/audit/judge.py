"""One partition before the judge: facts about its batches come in the order of the log, findings come out.

    judge = PartitionJudge(terms)
    for fact in facts: judge.saw(fact)
    verdict = judge.ended()

Offsets of a log that is not compacted are contiguous: markers and aborted batches take
theirs as all others do, and are seen here. So a hole is a loss, unless compaction or retention made it.
"""

from dataclasses import dataclass, field

from runnel.batch.header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from runnel.pipelines.audit.counts import Counts, OverTime
from runnel.pipelines.audit.facts import ABORT, CHECKSUM, COMMIT, GONE, TORN, UNREADABLE, BatchFact
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.placement import Event, Hole, Misplaced, Overlap, Placement, Spoilt
from runnel.pipelines.audit.sequences import Fenced, Jump, Repeat, Sequences

UNKNOWN = -1
FINDINGS_MAX = 200
"""Told of each kind in a partition one by one; the rest is counted."""
PLACES_TOLD = 3
JUMPS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """What is known of a partition before its batches are read."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int = UNKNOWN
    """One past the last offset that readers may see; UNKNOWN where only the batches show it."""
    is_compacted: bool = False
    may_be_compacted: bool = False
    """Nobody says whether it is: batches from which records were removed will show it."""
    cleaned_to: int | None = None
    """How far compaction may have come, if that is known; records behind it are all there."""
    time_is_strict: bool = False
    """Is a timestamp of a producer's that goes back a fault?"""
    time_tolerance_ms: int = 1000
    """By how much the broker's own clock may go back: that of another leader differs a little."""


@dataclass(slots=True)
class PartitionVerdict:
    """What came out for one partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    counts: Counts
    over_time: OverTime
    findings: list[Finding] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """How many further findings there are, by kind."""
    is_compacted: bool = False
    """Does compaction remove records of it? Then an archive may have what the log has not."""


class PartitionJudge:
    """Judges one partition, batch by batch."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._placement = Placement(terms.start_offset)
        self._damage = ""
        """What is wrong with the damaged batch whose end is not known yet."""
        self._last_end = terms.start_offset
        self._is_compacted = terms.is_compacted
        self._holes: list[tuple[int, int]] = []
        """Of which is not known yet whether compaction made them."""
        self._sequences = Sequences()
        self._jumps: list[tuple[int, int, int, str]] = []
        """(by how many sequences, first offset, last offset, words) where a producer's are not the next"""
        self._open: dict[int, tuple[int, int]] = {}
        """Of each open transaction, the first offset and how many records it has."""
        self._time_max = -1
        self._time_steps: list[tuple[int, int]] = []
        """(offset, by how much) where the time went back; the number of all is counted apart."""
        self._time_steps_count = 0
        self._append_time_step = 0
        self._told: dict[Kind, int] = {}
        self._verdict = PartitionVerdict(
            terms.topic, terms.partition, terms.start_offset, terms.end_offset, Counts(), OverTime()
        )

    def saw(self, fact: BatchFact) -> None:
        """The next batch of the log, or bytes in its place."""
        if fact.problem == GONE:
            self._gone(fact)
        elif fact.problem == TORN:
            words = "the last batch is cut off, as a crash leaves it: a broker that starts removes it"
            self._add(Level.NOTICE, Kind.TORN, fact.base_offset, fact.base_offset, words)
        elif fact.problem in (CHECKSUM, UNREADABLE):
            self._spoilt(fact)
        else:
            self._last_end = fact.last_offset + 1
            self._placed(self._placement.saw(fact.base_offset, fact.last_offset + 1))
            self._read(fact)

    def ended(self) -> PartitionVerdict:
        """The log is over."""
        verdict = self._verdict
        if verdict.end_offset == UNKNOWN:
            verdict.end_offset = self._last_end
        self._placed(self._placement.ended(verdict.end_offset))
        for first, end in self._holes:
            self._hole(first, end)
        for producer_id, (offset, count) in sorted(self._open.items()):
            words = f"producer {producer_id} has not ended its transaction of {count_text(count, 'record')}"
            self._add(Level.NOTICE, Kind.OPEN_TRANSACTION, offset, offset, words)
            self._verdict.counts.open += count
        self._judge_jumps()
        self._judge_time()
        verdict.is_compacted = self._is_compacted
        return self._verdict

    def _judge_jumps(self) -> None:
        """Tell of missing sequences, unless as many offsets before them are lost: it is those, then."""
        missing = [
            (finding.last_offset, finding.last_offset - finding.first_offset + 1)
            for finding in self._verdict.findings
            if finding.kind in (Kind.LOST, Kind.DAMAGED)
        ]
        for sequences, first, last, words in self._jumps:
            if not 0 < sequences <= sum(size for end, size in missing if end < first):
                self._add(Level.NOTICE, Kind.SEQUENCE_GAP, first, last, words)

    # Where batches are stored.

    def _placed(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Hole(first, end) if self._terms.may_be_compacted and not self._is_compacted:
                    self._holes.append((first, end))
                case Hole(first, end):
                    self._hole(first, end)
                case Overlap(first, end):
                    words = f"{count_text(end - first, 'offset')} are stored a second time in the log"
                    self._add(Level.FAULT, Kind.OVERLAP, first, end - 1, words)
                case Misplaced(first, end, said):
                    words = f"the batch at this position has base offset {said}"
                    self._add(Level.FAULT, Kind.MISPLACED, first, end - 1, words)
                case Spoilt(first, end):
                    words = f"{count_text(end - first, 'offset')} cannot be trusted: {self._damage}"
                    self._add(Level.FAULT, Kind.DAMAGED, first, end - 1, words)

    def _hole(self, first: int, end: int) -> None:
        """Offsets [first, end) are missing."""
        terms = self._terms
        if self._is_compacted:
            cleaned_to = end if terms.cleaned_to is None else min(end, terms.cleaned_to)
            if cleaned_to > first:
                self._verdict.counts.compacted += cleaned_to - first
                words = f"compaction removed {count_text(cleaned_to - first, 'offset')}"
                self._add(Level.EXPLAINED, Kind.COMPACTED, first, cleaned_to - 1, words)
                first = cleaned_to
        if first < end:
            self._verdict.counts.lost += end - first
            place = (
                "nothing follows" if end >= self._verdict.end_offset else f"the log continues at offset {end}"
            )
            words = f"{count_text(end - first, 'offset')} missing, {place}"
            self._add(Level.FAULT, Kind.LOST, first, end - 1, words)

    def _gone(self, fact: BatchFact) -> None:
        size = fact.last_offset - fact.base_offset + 1
        words = f"{count_text(size, 'offset')} went while the audit was reading"
        self._add(Level.EXPLAINED, Kind.RETENTION, fact.base_offset, fact.last_offset, words)
        self._placed(self._placement.gone(fact.last_offset + 1))

    def _spoilt(self, fact: BatchFact) -> None:
        """Of the header of a damaged batch only base offset and length are believed."""
        is_unreadable = fact.problem == UNREADABLE
        if is_unreadable and self._placement.is_spoilt:
            # Garbage behind a damaged batch is more of the same damage.
            return
        self._placed(self._placement.spoilt(fact.base_offset))
        self._damage = "no batch can be read there" if is_unreadable else "the checksum does not hold"
        self._verdict.counts.damaged += 1

    # What they say.

    def _read(self, fact: BatchFact) -> None:
        size = fact.last_offset - fact.base_offset + 1
        counts = self._verdict.counts
        counts.batches += 1
        counts.size_bytes += fact.size_bytes
        if fact.attributes & CONTROL:
            counts.control += fact.record_count
            if fact.marker in (COMMIT, ABORT):
                self._ended_transaction(fact)
            return
        counts.records += fact.record_count
        self._verdict.over_time.add(fact.max_timestamp, fact.record_count, fact.size_bytes)
        if fact.record_count < size or fact.attributes & DELETE_HORIZON:
            self._note_compaction(fact)
        if fact.record_count != size and not (self._is_compacted and fact.record_count < size):
            words = (
                f"a batch of {count_text(size, 'offset')} says that it holds {fact.record_count:,} records"
            )
            self._add(Level.FAULT, Kind.SHORT, fact.base_offset, fact.last_offset, words)
        if fact.attributes & TRANSACTIONAL:
            first, count = self._open.get(fact.producer_id, (fact.base_offset, 0))
            self._open[fact.producer_id] = first, count + fact.record_count
        else:
            counts.committed += fact.record_count
        if fact.producer_id >= 0 and fact.base_sequence >= 0:
            self._judge_sequence(fact, size)
        self._note_time(fact)

    def _note_compaction(self, fact: BatchFact) -> None:
        """Only compaction takes records out of a batch and makes a new checksum."""
        cleaned_to = self._terms.cleaned_to
        if self._terms.may_be_compacted and (cleaned_to is None or fact.base_offset < cleaned_to):
            self._is_compacted = True

    def _ended_transaction(self, fact: BatchFact) -> None:
        _, count = self._open.pop(fact.producer_id, (0, 0))
        if fact.marker == COMMIT:
            self._verdict.counts.committed += count
        else:
            self._verdict.counts.aborted += count
        self._sequences.ended(fact.producer_id, fact.producer_epoch)

    def _judge_sequence(self, fact: BatchFact, size: int) -> None:
        who = f"producer {fact.producer_id} epoch {fact.producer_epoch}"
        found = self._sequences.saw(
            fact.producer_id, fact.producer_epoch, fact.base_sequence, size, fact.base_offset
        )
        match found:
            case Repeat(first_offset):
                self._verdict.counts.duplicates += size
                before = "before" if first_offset is None else f"at offset {first_offset}"
                words = f"{who} wrote sequence {fact.base_sequence} {before} already"
                self._add(Level.FAULT, Kind.DUPLICATE, fact.base_offset, fact.last_offset, words)
            case Jump(sequences) if not self._is_compacted:
                way = f"{sequences:,} further on than" if sequences > 0 else f"{-sequences:,} before"
                words = f"{who} continues at sequence {fact.base_sequence}, {way} its next"
                if len(self._jumps) < JUMPS_MAX:
                    self._jumps.append((sequences, fact.base_offset, fact.last_offset, words))
            case Fenced(newer_epoch):
                words = f"{who} wrote behind its own epoch {newer_epoch}"
                self._add(Level.NOTICE, Kind.OLDER_EPOCH, fact.base_offset, fact.last_offset, words)

    # When it was.

    def _note_time(self, fact: BatchFact) -> None:
        step = self._time_max - fact.max_timestamp
        if step > 0 and fact.max_timestamp >= 0:
            self._time_steps_count += 1
            self._time_steps.append((fact.base_offset, step))
            self._time_steps.sort(key=lambda entry: -entry[1])
            del self._time_steps[PLACES_TOLD:]
            if fact.attributes & LOG_APPEND_TIME:
                self._append_time_step = max(self._append_time_step, step)
        self._time_max = max(self._time_max, fact.max_timestamp)

    def _judge_time(self) -> None:
        if not self._time_steps:
            return
        terms = self._terms
        self._verdict.counts.out_of_order = self._time_steps_count
        is_fault = terms.time_is_strict or self._append_time_step > terms.time_tolerance_ms
        offset, step = self._time_steps[0]
        places = ", ".join(str(offset) for offset, _ in self._time_steps)
        words = (
            f"in {count_text(self._time_steps_count, 'batch')} time is before that of an earlier one, "
            f"by up to {step:,} ms; most at offsets {places}"
        )
        self._add(Level.FAULT if is_fault else Level.NOTICE, Kind.TIME, offset, offset, words)

    def _add(self, level: Level, kind: Kind, first: int, last: int, words: str) -> None:
        told = self._told[kind] = self._told.get(kind, 0) + 1
        if told > FINDINGS_MAX:
            self._verdict.left_out[kind] = told - FINDINGS_MAX
            return
        terms = self._terms
        self._verdict.findings.append(Finding(level, kind, terms.topic, terms.partition, first, last, words))
