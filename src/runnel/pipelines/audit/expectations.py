"""Checks a log against external knowledge: record counts of producers, committed offsets of groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.checker import PartitionResult
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.errors import BadOption


@dataclass(frozen=True, slots=True)
class ExpectedCount:
    """The expected number of records of a topic, or of one of its partitions."""

    topic: str
    partition: int | None
    count: int


def parse_expected(text: str) -> ExpectedCount:
    """Read TOPIC=COUNT or TOPIC:PARTITION=COUNT."""
    name, equals, count = text.rpartition("=")
    topic, colon, partition = name.partition(":")
    if not equals or not topic or not count.isdecimal() or (colon and not partition.isdecimal()):
        raise BadOption(f"{text!r} is not an expected count: write orders=1000 or orders:0=1000")
    return ExpectedCount(topic, int(partition) if colon else None, int(count))


def check_counts(expected: Iterable[ExpectedCount], results: Sequence[PartitionResult]) -> list[Finding]:
    """Compare the number of committed records with the expected counts."""
    findings = []
    for each in expected:
        seen = [
            result
            for result in results
            if result.topic == each.topic and each.partition in (None, result.partition)
        ]
        finding = _check_count(each, seen)
        if finding is not None:
            findings.append(finding)
    return findings


def _check_count(expected: ExpectedCount, seen: Sequence[PartitionResult]) -> Finding | None:
    counted = sum(result.counts.committed for result in seen)
    # Retention and compaction removed at most one record per offset.
    removed = sum(result.start_offset + result.counts.compacted for result in seen)
    open_records = sum(result.counts.open for result in seen)
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


def check_groups(
    positions: Mapping[str, Mapping[TopicPartition, int]], results: Sequence[PartitionResult]
) -> list[Finding]:
    """Compare committed offsets of groups with the log: an offset beyond the end means lost records."""
    known = {TopicPartition(result.topic, result.partition): result for result in results}
    findings = []
    for group, offsets in sorted(positions.items()):
        for partition, offset in sorted(offsets.items()):
            result = known.get(partition)
            if result is None:
                continue
            if offset > result.end_offset:
                text = (
                    f"group {group} committed offset {offset}, beyond the end: records that it read are lost"
                )
                span = result.end_offset, offset - 1
                findings.append(Finding(Level.FAULT, Kind.GROUP, *partition, *span, text))
            elif offset < result.start_offset:
                missed = count_text(result.start_offset - offset, "offset")
                text = f"{missed} were deleted before group {group} read them"
                span = offset, result.start_offset - 1
                findings.append(Finding(Level.NOTICE, Kind.GROUP, *partition, *span, text))
    return findings
