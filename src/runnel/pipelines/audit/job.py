"""The audit as a job: read every batch, judge every partition, compare with what others say, report."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.archive import Archive, Archived, compare
from runnel.pipelines.audit.batches import Piece, batch_facts
from runnel.pipelines.audit.counts import Counts
from runnel.pipelines.audit.expectations import Expected, judge_counts, judge_groups
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.folder import partitions_of
from runnel.pipelines.audit.judge import PartitionVerdict, Terms
from runnel.pipelines.audit.judging import judge_all
from runnel.pipelines.audit.pieces import cut
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, PipelineError
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.data_folder import held_data_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS_PER_TASK = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What is audited, and against what."""

    bootstrap: str | None = None
    folder: Path | None = None
    """The data folder of a broker that is not running, in place of a running one."""
    topics: tuple[str, ...] = ()
    """All topics that are not the broker's own, if none is named."""
    archive: Archive | None = None
    expected: tuple[Expected, ...] = ()
    compacted: tuple[str, ...] = ()
    """Topics that were compacted once and are not any more: their settings do not show it."""
    time_is_strict: bool = False
    report: Path | None = None
    """The folder for the report; None writes none."""
    offsets_per_task: int = OFFSETS_PER_TASK


@dataclass(slots=True)
class AuditOutcome:
    """What an audit comes to."""

    is_sound: bool
    headline: str
    source: str
    counts: Counts
    faults: list[Finding]
    notices: list[Finding]
    explained: list[Finding]
    partitions: list[PartitionVerdict]
    archived: list[Archived] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    report: str | None = None


def run(session: "SparkSession", options: AuditOptions, progress: Progress) -> AuditOutcome:
    """Audit a broker or a data folder, and write the report."""
    began_ms = round(time.time() * 1000)
    held = nullcontext() if options.folder is None else held_data_folder(str(options.folder))
    with held:
        terms, pieces, positions = _plan(options)
        with progress.tasks(session, "reading every batch"):
            verdicts = judge_all(batch_facts(session, options.bootstrap or "", pieces), terms)
    findings = judge_counts(options.expected, verdicts) + judge_groups(positions, verdicts)
    findings += _retention(verdicts)
    archived = _archived(session, options, verdicts, progress)
    findings += [finding for entry in archived for finding in entry.findings]
    outcome = outcome_of(str(options.folder or options.bootstrap), verdicts, findings, archived)
    if options.report is not None:
        from runnel.pipelines.audit.page import audit_page
        from runnel.pipelines.report.writing import write_report

        outcome.report = str(options.report / "index.html")
        write_report(options.report, audit_page(outcome, began_ms), outcome)
    return outcome


def outcome_of(
    source: str, verdicts: Sequence[PartitionVerdict], findings: Sequence[Finding], archived: list[Archived]
) -> AuditOutcome:
    """Everything that was found, by how bad it is."""
    every = [finding for verdict in verdicts for finding in verdict.findings] + list(findings)
    by_level = {level: [finding for finding in every if finding.level is level] for level in Level}
    counts, left_out = Counts(), dict[str, int]()
    for verdict in verdicts:
        counts += verdict.counts
        for kind, count in verdict.left_out.items():
            left_out[kind] = left_out.get(kind, 0) + count
    # What neither the log nor the archive has.
    counts.lost += sum(
        finding.last_offset - finding.first_offset + 1 for finding in findings if finding.kind is Kind.LOST
    )
    faults = by_level[Level.FAULT]
    return AuditOutcome(
        not faults,
        headline(faults, left_out, counts, len(verdicts)),
        source,
        counts,
        faults,
        by_level[Level.NOTICE],
        by_level[Level.EXPLAINED],
        list(verdicts),
        archived,
        left_out,
    )


def headline(faults: Sequence[Finding], left_out: Mapping[str, int], counts: Counts, partitions: int) -> str:
    """The verdict in one line."""
    if not faults:
        records = count_text(counts.records, "record")
        return f"Nothing is lost: {records} in {count_text(partitions, 'partition')}, every batch is sound"
    numbers: dict[Kind, int] = {}
    for fault in faults:
        numbers[fault.kind] = numbers.get(fault.kind, 0) + 1
    for kind in numbers:
        numbers[kind] += left_out.get(kind, 0)
    most_first = sorted(numbers, key=lambda kind: -numbers[kind])
    named = [str(kind) if numbers[kind] == 1 else f"{numbers[kind]:,} × {kind}" for kind in most_first]
    return f"{count_text(sum(numbers.values()), 'fault')}: {', '.join(named)}"


def _plan(
    options: AuditOptions,
) -> tuple[dict[tuple[str, int], Terms], list[tuple[Piece, int]], Mapping[str, Mapping[TopicPartition, int]]]:
    if options.folder is not None:
        return *_plan_folder(options, options.folder), {}
    if options.bootstrap is None:
        raise BadOption("say what to audit: a broker, or the folder of one that is not running")
    with BrokerView(options.bootstrap, client_id="runnel-audit") as broker:
        # Positions first: a group that consumes meanwhile must not be beyond the end.
        positions = {group: broker.group_offsets(group) for group in broker.groups()}
        terms = _broker_terms(broker, options)
    pieces: list[tuple[Piece, int]] = [
        (piece, known.start_offset)
        for known in terms.values()
        for piece in cut(
            known.topic, known.partition, known.start_offset, known.end_offset, options.offsets_per_task
        )
    ]
    return terms, pieces, positions


def _plan_folder(
    options: AuditOptions, folder: Path
) -> tuple[dict[tuple[str, int], Terms], list[tuple[Piece, int]]]:
    if options.archive is not None:
        raise BadOption("an archive is compared with a running broker: leave the folder out, or the archive")
    found = [
        partition
        for partition in partitions_of(
            folder, compacted=options.compacted, time_is_strict=options.time_is_strict
        )
        if not options.topics or partition.terms.topic in options.topics
    ]
    _check_found(options.topics, {partition.terms.topic for partition in found})
    terms = {(partition.terms.topic, partition.terms.partition): partition.terms for partition in found}
    return terms, [
        (segment, partition.terms.start_offset) for partition in found for segment in partition.segments
    ]


def _check_found(wanted: Sequence[str], found: set[str]) -> None:
    missing = [topic for topic in wanted if topic not in found]
    if missing:
        raise PipelineError(f"there is no topic {', '.join(missing)}")


def _broker_terms(broker: BrokerView, options: AuditOptions) -> dict[tuple[str, int], Terms]:
    topics = options.topics or tuple(view.name for view in broker.topics())
    partitions = broker.partitions(topics)
    # Ends first: what retention removes between the two questions must not make an end before its start.
    ends = broker.latest_offsets(partitions)
    starts = broker.earliest_offsets(partitions)
    compacted = {topic: topic in options.compacted or _is_compacted(broker, topic) for topic in topics}
    return {
        (partition.topic, partition.partition): Terms(
            partition.topic,
            partition.partition,
            starts[partition],
            max(ends[partition], starts[partition]),
            is_compacted=compacted[partition.topic],
            time_is_strict=options.time_is_strict,
        )
        for partition in partitions
    }


def _is_compacted(broker: BrokerView, topic: str) -> bool:
    return "compact" in (broker.topic_settings(topic).get("cleanup.policy") or "")


def _retention(verdicts: Sequence[PartitionVerdict]) -> list[Finding]:
    """A log that does not begin at 0 has been cut on purpose; who wants more compares it with the archive."""
    return [
        Finding(
            Level.EXPLAINED,
            Kind.RETENTION,
            verdict.topic,
            verdict.partition,
            0,
            verdict.start_offset - 1,
            f"the log begins at offset {verdict.start_offset}",
        )
        for verdict in verdicts
        if verdict.start_offset > 0
    ]


def _archived(
    session: "SparkSession",
    options: AuditOptions,
    verdicts: Sequence[PartitionVerdict],
    progress: Progress,
) -> list[Archived]:
    if options.archive is None or options.bootstrap is None:
        return []
    topics = sorted({verdict.topic for verdict in verdicts})
    archived = []
    for topic in topics:
        own = [verdict for verdict in verdicts if verdict.topic == topic]
        with progress.tasks(session, f"comparing {topic} with its archive"):
            archived.append(compare(session, options.bootstrap, options.archive, topic, own))
    return archived
