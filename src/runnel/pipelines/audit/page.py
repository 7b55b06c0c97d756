"""The HTML report of an audit."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from runnel.pipelines.audit.checker import PartitionResult
from runnel.pipelines.audit.counts import STEPS_MS, OverTime
from runnel.pipelines.audit.findings import Finding, Level, count_text
from runnel.pipelines.report.page import Block, Cell, Figure, Page, Section, Status, Table, Wide
from runnel.visual.charts import SERIES_MAX, LineChart, Series
from runnel.visual.strips import Ribbon, Ribbons, Span, sparkline
from runnel.visual.units import Unit, moment_text

if TYPE_CHECKING:
    from runnel.pipelines.audit.job import AuditOutcome

RIBBONS_MAX = 40
_SPARKS = 40
_POINTS = 200
_COLOURS = {Level.FAULT: "bad", Level.NOTICE: "warn", Level.EXPLAINED: "plain"}


def audit_page(outcome: "AuditOutcome", began_ms: int) -> Page:
    """The whole report."""
    level = "bad" if outcome.faults else "good"
    sections = [
        *_found("Faults", outcome.faults, "bad"),
        _log(outcome),
        _over_time(outcome.partitions),
        _partitions(outcome.partitions),
        *_archive(outcome),
        *_found("Notices", outcome.notices, "warn"),
        *_found("Explained by compaction or retention", outcome.explained, "plain"),
    ]
    return Page(
        "Runnel audit",
        f"{outcome.source} · {moment_text(began_ms)} UTC",
        Status(level, outcome.headline, _detail(outcome)),
        _figures(outcome),
        sections,
        [("source", outcome.source), ("began", f"{moment_text(began_ms)} UTC"), ("data", "report.json")],
    )


def _detail(outcome: "AuditOutcome") -> str:
    if outcome.faults:
        locations = [fault.where for fault in outcome.faults[:3]]
        more = len(outcome.faults) - len(locations)
        return "; ".join(locations) + (f" and {more:,} more" if more else "")
    return "Offsets are contiguous, checksums are valid, and no sequence number is duplicated."


def _figures(outcome: "AuditOutcome") -> list[Figure]:
    counts = outcome.counts
    topics = len({result.topic for result in outcome.partitions})
    spread = f"{count_text(topics, 'topic')}, {count_text(len(outcome.partitions), 'partition')}"

    def checked(name: str, number: int, caption: str) -> Figure:
        return Figure(name, f"{number:,}", caption, "bad" if number else "good")

    figures = [
        Figure("Records", Unit.COUNT.text(counts.records), spread),
        Figure("Batches checked", Unit.COUNT.text(counts.batches), Unit.BYTES.text(counts.size_bytes)),
        checked("Lost", counts.lost, "missing offsets"),
        checked("Damaged", counts.damaged, "batches with an invalid checksum"),
        checked("Duplicates", counts.duplicates, "records written twice"),
    ]
    if outcome.archived:
        rows = sum(entry.rows for entry in outcome.archived)
        files = sum(entry.files for entry in outcome.archived)
        figures.append(Figure("Archived", Unit.COUNT.text(rows), count_text(files, "file")))
    return figures


def _found(title: str, findings: Sequence[Finding], level: str) -> Iterable[Section]:
    if findings:
        rows = [[Cell(finding.kind, level), finding.where, finding.text] for finding in findings]
        yield Section(title, [Table(["finding", "location", "details"], rows, rows_max=300, is_prose=True)])


def _log(outcome: "AuditOutcome") -> Section:
    by_partition: dict[tuple[str, int], list[Finding]] = {}
    for finding in (*outcome.faults, *outcome.notices, *outcome.explained):
        by_partition.setdefault((finding.topic, finding.partition), []).append(finding)
    rows = [_ribbon(result, by_partition) for result in outcome.partitions]
    rows.sort(key=lambda row: not any(span.level == "bad" for span in row.spans))
    names = [("good", "valid"), ("plain", "explained"), ("warn", "notice"), ("bad", "fault")]
    chart = Ribbons("Every partition from its first offset to its last", rows[:RIBBONS_MAX], names)
    hidden = len(rows) - RIBBONS_MAX
    caption = f"{hidden} partitions without faults are not shown." if hidden > 0 else ""
    return Section("The log by offset", [Wide(chart, caption)])


def _ribbon(result: PartitionResult, by_partition: dict[tuple[str, int], list[Finding]]) -> Ribbon:
    found = by_partition.get((result.topic, result.partition), [])
    spans = [
        Span(
            finding.first_offset,
            finding.last_offset + 1,
            _COLOURS[finding.level],
            f"{finding.kind}: {finding.where}\n{finding.text}",
        )
        for finding in found
        if finding.first_offset >= 0 and finding.last_offset >= result.start_offset
    ]
    return Ribbon(f"{result.topic}-{result.partition}", result.start_offset, result.end_offset, spans)


def _over_time(results: Sequence[PartitionResult]) -> Section:
    by_topic: dict[str, OverTime] = {}
    for result in results:
        by_topic.setdefault(result.topic, OverTime()).merge(result.over_time)
    step_ms = _step_ms(by_topic.values())
    shown = sorted(by_topic, key=lambda topic: -_total(by_topic[topic]))
    series = [Series(topic, _points(by_topic[topic], step_ms)) for topic in shown[:SERIES_MAX]]
    chart = LineChart("Records by batch timestamp", series, Unit.COUNT, is_filled=True)
    caption = f"Each point covers {Unit.DURATION_MS.text(step_ms)}."
    if len(shown) > SERIES_MAX:
        caption += f" The {SERIES_MAX} largest of {len(shown)} topics."
    return Section("Records over time", [Wide(chart, caption)])


def _step_ms(all_over_time: Iterable[OverTime]) -> int:
    """The smallest step that keeps the chart readable, at least the step of the counters."""
    known = list(all_over_time)
    finest = max((over_time.step_ms for over_time in known), default=STEPS_MS[0])
    starts = [start for over_time in known for start in over_time.buckets]
    span_ms = max(starts) - min(starts) if starts else 0
    return next((step for step in STEPS_MS if step >= finest and span_ms // step <= _POINTS), finest)


def _total(over_time: OverTime) -> int:
    return sum(records for records, _ in over_time.buckets.values())


def _points(over_time: OverTime, step_ms: int) -> list[tuple[float, float]]:
    """Every step from the first to the last; steps without records are zero."""
    over_time.widen(step_ms)
    if not over_time.buckets:
        return []
    first, last = min(over_time.buckets), max(over_time.buckets)
    steps = (last - first) // step_ms + 1
    if steps > 100 * _POINTS:
        return [(start, records) for start, (records, _) in sorted(over_time.buckets.items())]
    return [
        (start, over_time.buckets.get(start, (0, 0))[0]) for start in range(first, last + step_ms, step_ms)
    ]


def _partitions(results: Sequence[PartitionResult]) -> Section:
    rows = []
    for result in results:
        counts = result.counts
        faults = sum(finding.level is Level.FAULT for finding in result.findings)
        state = Cell(count_text(faults, "fault"), "bad") if faults else Cell("ok", "good")
        rows.append(
            [
                f"{result.topic}-{result.partition}",
                f"{result.start_offset:,}",
                f"{result.end_offset:,}",
                f"{counts.committed:,}",
                f"{counts.aborted:,}",
                f"{counts.control:,}",
                Unit.BYTES.text(counts.size_bytes),
                Cell(markup=_spark(result.over_time)),
                state,
            ]
        )
    rows.sort(key=lambda row: getattr(row[-1], "level", "") != "bad")
    columns = [
        "partition",
        "#first",
        "#end",
        "#committed",
        "#aborted",
        "#markers",
        "#size",
        "over time",
        "state",
    ]
    return Section("Partitions", [Table(columns, rows)])


def _spark(over_time: OverTime) -> str:
    if not over_time.buckets:
        return ""
    first, last = min(over_time.buckets), max(over_time.buckets)
    # Multiples of the step, so that all points cover the same time.
    steps = (last - first) // over_time.step_ms + 1
    width = over_time.step_ms * max(1, -(-steps // _SPARKS))
    values = [0.0] * ((last - first) // width + 1)
    for start, (records, _) in over_time.buckets.items():
        values[(start - first) // width] += records
    return sparkline(values, "records over time")


def _archive(outcome: "AuditOutcome") -> Iterable[Section]:
    if not outcome.archived:
        return
    rows = []
    for entry in outcome.archived:
        faults = sum(finding.level is Level.FAULT for finding in entry.findings)
        waiting = sum(
            finding.last_offset - finding.first_offset + 1
            for finding in entry.findings
            if finding.level is Level.NOTICE and finding.first_offset >= 0
        )
        state = Cell(count_text(faults, "fault"), "bad") if faults else Cell("agrees", "good")
        rows.append([entry.topic, f"{entry.rows:,}", f"{entry.files:,}", f"{waiting:,}", state])
    blocks: list[Block] = [Table(["topic", "#records", "#files", "#to be archived", "state"], rows)]
    intro = "Every record of the log was compared with the archive, including its contents."
    yield Section("The archive", blocks, intro)
