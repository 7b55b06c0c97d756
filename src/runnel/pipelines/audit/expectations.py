"""What others say that a log should hold: those who wrote it count, those who read it have positions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.judge import PartitionVerdict
from runnel.pipelines.errors import BadOption


@dataclass(frozen=True, slots=True)
class Expected:
    """So many records were written to a topic, or to one partition of it."""

    topic: str
    partition: int | None
    count: int


def parse_expected(text: str) -> Expected:
    """Read TOPIC=COUNT or TOPIC:PARTITION=COUNT."""
    place, equals, count = text.rpartition("=")
    topic, colon, partition = place.partition(":")
    if not equals or not topic or not count.isdecimal() or (colon and not partition.isdecimal()):
        raise BadOption(f"{text!r} is not an expected count: write orders=1000 or orders:0=1000")
    return Expected(topic, int(partition) if colon else None, int(count))


def judge_counts(expected: Iterable[Expected], verdicts: Sequence[PartitionVerdict]) -> list[Finding]:
    """Compare committed records with what was written."""
    findings = []
    for each in expected:
        seen = [
            verdict
            for verdict in verdicts
            if verdict.topic == each.topic and each.partition in (None, verdict.partition)
        ]
        finding = _judge_count(each, seen)
        if finding is not None:
            findings.append(finding)
    return findings


def _judge_count(expected: Expected, seen: Sequence[PartitionVerdict]) -> Finding | None:
    counted = sum(verdict.counts.committed for verdict in seen)
    # What retention or compaction removed had at most one record per offset.
    removed = sum(verdict.start_offset + verdict.counts.compacted for verdict in seen)
    open_records = sum(verdict.counts.open for verdict in seen)
    if counted == expected.count:
        return None
    may_be_fine = counted < expected.count <= counted + removed
    asked = f"{expected.count:,} expected, {count_text(counted, 'committed record')} found"
    rest = f"; {removed:,} offsets were removed by retention or compaction" if removed else ""
    waiting = f"; {count_text(open_records, 'record')} in open transactions" if open_records else ""
    return Finding(
        Level.NOTICE if may_be_fine else Level.FAULT,
        Kind.COUNT,
        expected.topic,
        -1 if expected.partition is None else expected.partition,
        -1,
        -1,
        asked + rest + waiting,
    )


def judge_groups(
    positions: Mapping[str, Mapping[TopicPartition, int]], verdicts: Sequence[PartitionVerdict]
) -> list[Finding]:
    """Compare the offsets of groups with the log: one beyond the end has read records that are lost."""
    known = {TopicPartition(verdict.topic, verdict.partition): verdict for verdict in verdicts}
    findings = []
    for group, offsets in sorted(positions.items()):
        for partition, offset in sorted(offsets.items()):
            verdict = known.get(partition)
            if verdict is None:
                continue
            if offset > verdict.end_offset:
                words = f"group {group} committed offset {offset}, beyond the end: what it read there is lost"
                span = verdict.end_offset, offset - 1
                findings.append(Finding(Level.FAULT, Kind.GROUP, *partition, *span, words))
            elif offset < verdict.start_offset:
                missed = count_text(verdict.start_offset - offset, "offset")
                words = f"{missed} went before group {group} read them"
                span = offset, verdict.start_offset - 1
                findings.append(Finding(Level.NOTICE, Kind.GROUP, *partition, *span, words))
    return findings
