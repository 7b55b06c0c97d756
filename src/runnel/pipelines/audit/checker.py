"""Checks one partition: takes summaries of its batches in log order, and returns findings.

    checker = PartitionChecker(info)
    for summary in summaries: checker.add(summary)
    result = checker.finish()

The offsets of a log that is not compacted are contiguous, including transaction markers and aborted batches.
A gap is therefore a loss, unless compaction or retention explains it.
"""

from dataclasses import dataclass, field

from runnel.batch.header import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from runnel.pipelines.audit.batch_summary import (
    ABORT,
    CHECKSUM,
    COMMIT,
    REMOVED,
    TORN,
    UNREADABLE,
    BatchSummary,
)
from runnel.pipelines.audit.continuity import DamagedRange, Event, Gap, OffsetContinuity, Overlap, WrongOffset
from runnel.pipelines.audit.counts import Counts, OverTime
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.sequences import DuplicateSequence, ProducerSequences, SequenceGap, StaleEpoch

UNKNOWN = -1
FINDINGS_MAX = 200
"""Findings of each kind kept per partition; further ones are counted."""
OFFSETS_REPORTED_MAX = 3
SEQUENCE_GAPS_MAX = 1000


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The state of a partition before its batches are read."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int = UNKNOWN
    """The high watermark; UNKNOWN if only the batches show it."""
    is_compacted: bool = False
    may_be_compacted: bool = False
    """Unknown whether it is compacted: batches with removed records show it."""
    cleaned_to: int | None = None
    """The end of the range that may be compacted, if known; later records are all present."""
    time_is_strict: bool = False
    """Is a decreasing CreateTime a fault?"""
    time_tolerance_ms: int = 1000
    """Allowed decrease of LogAppendTime: the clocks of leaders differ a little."""


@dataclass(slots=True)
class PartitionResult:
    """The result for one partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    counts: Counts
    over_time: OverTime
    findings: list[Finding] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    """The number of findings not kept, by kind."""
    is_compacted: bool = False
    """A compacted log may lack records that its archive has."""


class PartitionChecker:
    """Checks one partition batch by batch."""

    def __init__(self, info: PartitionInfo) -> None:
        self._info = info
        self._continuity = OffsetContinuity(info.start_offset)
        self._damage = ""
        """The problem of the damaged batch whose end is not known yet."""
        self._last_end = info.start_offset
        self._is_compacted = info.is_compacted
        self._gaps: list[tuple[int, int]] = []
        """Gaps that compaction may explain."""
        self._sequences = ProducerSequences()
        self._sequence_gaps: list[tuple[int, int, int, str]] = []
        """(size of the gap, first offset, last offset, text) of each sequence gap"""
        self._open: dict[int, tuple[int, int]] = {}
        """First offset and record count of each open transaction, by producer id."""
        self._time_max = -1
        self._time_steps: list[tuple[int, int]] = []
        """(offset, decrease) of the largest timestamp decreases."""
        self._time_steps_count = 0
        self._append_time_step = 0
        self._reported: dict[Kind, int] = {}
        self._result = PartitionResult(
            info.topic, info.partition, info.start_offset, info.end_offset, Counts(), OverTime()
        )

    def add(self, summary: BatchSummary) -> None:
        """Add the next batch of the log, or unreadable bytes."""
        if summary.problem == REMOVED:
            self._removed(summary)
        elif summary.problem == TORN:
            text = "the last batch is incomplete, as after a crash: recovery truncates it"
            self._add(Level.NOTICE, Kind.TORN, summary.base_offset, summary.base_offset, text)
        elif summary.problem in (CHECKSUM, UNREADABLE):
            self._damaged(summary)
        else:
            self._last_end = summary.last_offset + 1
            self._report_discontinuities(self._continuity.add(summary.base_offset, summary.last_offset + 1))
            self._read(summary)

    def finish(self) -> PartitionResult:
        """Finish at the end of the log."""
        result = self._result
        if result.end_offset == UNKNOWN:
            result.end_offset = self._last_end
        self._report_discontinuities(self._continuity.finish(result.end_offset))
        for first, end in self._gaps:
            self._report_gap(first, end)
        for producer_id, (offset, count) in sorted(self._open.items()):
            text = f"producer {producer_id} has not finish its transaction of {count_text(count, 'record')}"
            self._add(Level.NOTICE, Kind.OPEN_TRANSACTION, offset, offset, text)
            self._result.counts.open += count
        self._check_sequence_gaps()
        self._check_time()
        result.is_compacted = self._is_compacted
        return self._result

    def _check_sequence_gaps(self) -> None:
        """Report sequence gaps, unless lost offsets before them explain them."""
        missing = [
            (finding.last_offset, finding.last_offset - finding.first_offset + 1)
            for finding in self._result.findings
            if finding.kind in (Kind.LOST, Kind.DAMAGED)
        ]
        for sequences, first, last, text in self._sequence_gaps:
            if not 0 < sequences <= sum(size for end, size in missing if end < first):
                self._add(Level.NOTICE, Kind.SEQUENCE_GAP, first, last, text)

    # Offsets.

    def _report_discontinuities(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Gap(first, end) if self._info.may_be_compacted and not self._is_compacted:
                    self._gaps.append((first, end))
                case Gap(first, end):
                    self._report_gap(first, end)
                case Overlap(first, end):
                    text = f"{count_text(end - first, 'offset')} are stored a second time in the log"
                    self._add(Level.FAULT, Kind.OVERLAP, first, end - 1, text)
                case WrongOffset(first, end, base_offset):
                    text = f"the batch at this position has base offset {base_offset}"
                    self._add(Level.FAULT, Kind.MISPLACED, first, end - 1, text)
                case DamagedRange(first, end):
                    text = f"{count_text(end - first, 'offset')} cannot be trusted: {self._damage}"
                    self._add(Level.FAULT, Kind.DAMAGED, first, end - 1, text)

    def _report_gap(self, first: int, end: int) -> None:
        """Report missing offsets [first, end)."""
        info = self._info
        if self._is_compacted:
            cleaned_to = end if info.cleaned_to is None else min(end, info.cleaned_to)
            if cleaned_to > first:
                self._result.counts.compacted += cleaned_to - first
                text = f"compaction removed {count_text(cleaned_to - first, 'offset')}"
                self._add(Level.EXPLAINED, Kind.COMPACTED, first, cleaned_to - 1, text)
                first = cleaned_to
        if first < end:
            self._result.counts.lost += end - first
            rest = (
                "nothing follows" if end >= self._result.end_offset else f"the log continues at offset {end}"
            )
            text = f"{count_text(end - first, 'offset')} missing, {rest}"
            self._add(Level.FAULT, Kind.LOST, first, end - 1, text)

    def _removed(self, summary: BatchSummary) -> None:
        size = summary.last_offset - summary.base_offset + 1
        text = f"{count_text(size, 'offset')} were deleted by retention during the audit"
        self._add(Level.EXPLAINED, Kind.RETENTION, summary.base_offset, summary.last_offset, text)
        self._report_discontinuities(self._continuity.skip_removed(summary.last_offset + 1))

    def _damaged(self, summary: BatchSummary) -> None:
        """Only base offset and length of a damaged batch are used."""
        is_unreadable = summary.problem == UNREADABLE
        if is_unreadable and self._continuity.is_in_damage:
            # Garbage after a damaged batch is part of the same damage.
            return
        self._report_discontinuities(self._continuity.add_damaged(summary.base_offset))
        self._damage = "no batch can be read there" if is_unreadable else "the checksum is invalid"
        self._result.counts.damaged += 1

    # Contents.

    def _read(self, summary: BatchSummary) -> None:
        size = summary.last_offset - summary.base_offset + 1
        counts = self._result.counts
        counts.batches += 1
        counts.size_bytes += summary.size_bytes
        if summary.attributes & CONTROL:
            counts.control += summary.record_count
            if summary.marker in (COMMIT, ABORT):
                self._end_transaction(summary)
            return
        counts.records += summary.record_count
        self._result.over_time.add(summary.max_timestamp, summary.record_count, summary.size_bytes)
        if summary.record_count < size or summary.attributes & DELETE_HORIZON:
            self._detect_compaction(summary)
        if summary.record_count != size and not (self._is_compacted and summary.record_count < size):
            text = f"a batch of {count_text(size, 'offset')} has a record count of {summary.record_count:,}"
            self._add(Level.FAULT, Kind.SHORT, summary.base_offset, summary.last_offset, text)
        if summary.attributes & TRANSACTIONAL:
            first, count = self._open.get(summary.producer_id, (summary.base_offset, 0))
            self._open[summary.producer_id] = first, count + summary.record_count
        else:
            counts.committed += summary.record_count
        if summary.producer_id >= 0 and summary.base_sequence >= 0:
            self._check_sequence(summary, size)
        self._track_time(summary)

    def _detect_compaction(self, summary: BatchSummary) -> None:
        """Only compaction removes records from a batch and updates its checksum."""
        cleaned_to = self._info.cleaned_to
        if self._info.may_be_compacted and (cleaned_to is None or summary.base_offset < cleaned_to):
            self._is_compacted = True

    def _end_transaction(self, summary: BatchSummary) -> None:
        _, count = self._open.pop(summary.producer_id, (0, 0))
        if summary.marker == COMMIT:
            self._result.counts.committed += count
        else:
            self._result.counts.aborted += count
        self._sequences.end_transaction(summary.producer_id, summary.producer_epoch)

    def _check_sequence(self, summary: BatchSummary, size: int) -> None:
        producer = f"producer {summary.producer_id} epoch {summary.producer_epoch}"
        found = self._sequences.add(
            summary.producer_id, summary.producer_epoch, summary.base_sequence, size, summary.base_offset
        )
        match found:
            case DuplicateSequence(first_offset):
                self._result.counts.duplicates += size
                before = "before" if first_offset is None else f"at offset {first_offset}"
                text = f"{producer} wrote sequence {summary.base_sequence} {before} already"
                self._add(Level.FAULT, Kind.DUPLICATE, summary.base_offset, summary.last_offset, text)
            case SequenceGap(sequences) if not self._is_compacted:
                way = f"{sequences:,} after" if sequences > 0 else f"{-sequences:,} before"
                text = f"{producer} continues at sequence {summary.base_sequence}, {way} the expected one"
                if len(self._sequence_gaps) < SEQUENCE_GAPS_MAX:
                    self._sequence_gaps.append((sequences, summary.base_offset, summary.last_offset, text))
            case StaleEpoch(newer_epoch):
                text = f"{producer} wrote after its newer epoch {newer_epoch}"
                self._add(Level.NOTICE, Kind.OLDER_EPOCH, summary.base_offset, summary.last_offset, text)

    # Timestamps.

    def _track_time(self, summary: BatchSummary) -> None:
        step = self._time_max - summary.max_timestamp
        if step > 0 and summary.max_timestamp >= 0:
            self._time_steps_count += 1
            self._time_steps.append((summary.base_offset, step))
            self._time_steps.sort(key=lambda entry: -entry[1])
            del self._time_steps[OFFSETS_REPORTED_MAX:]
            if summary.attributes & LOG_APPEND_TIME:
                self._append_time_step = max(self._append_time_step, step)
        self._time_max = max(self._time_max, summary.max_timestamp)

    def _check_time(self) -> None:
        if not self._time_steps:
            return
        info = self._info
        self._result.counts.out_of_order = self._time_steps_count
        is_fault = info.time_is_strict or self._append_time_step > info.time_tolerance_ms
        offset, step = self._time_steps[0]
        offsets = ", ".join(str(offset) for offset, _ in self._time_steps)
        text = (
            f"in {count_text(self._time_steps_count, 'batch')} the timestamp is before an earlier one, "
            f"by up to {step:,} ms; largest at offsets {offsets}"
        )
        self._add(Level.FAULT if is_fault else Level.NOTICE, Kind.TIME, offset, offset, text)

    def _add(self, level: Level, kind: Kind, first: int, last: int, text: str) -> None:
        reported = self._reported[kind] = self._reported.get(kind, 0) + 1
        if reported > FINDINGS_MAX:
            self._result.left_out[kind] = reported - FINDINGS_MAX
            return
        info = self._info
        self._result.findings.append(Finding(level, kind, info.topic, info.partition, first, last, text))
