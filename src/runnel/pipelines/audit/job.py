"""The audit job: reads every batch, checks every partition, compares it with other sources, and reports."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.archive import Archive, ArchivedTopic, compare
from runnel.pipelines.audit.batches import Split, batch_summaries
from runnel.pipelines.audit.checker import PartitionInfo, PartitionResult
from runnel.pipelines.audit.checking import check_partitions
from runnel.pipelines.audit.counts import Counts
from runnel.pipelines.audit.expectations import ExpectedCount, check_counts, check_groups
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.folder import partitions_of
from runnel.pipelines.audit.splits import split_offsets
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.errors import BadOption, PipelineError
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.data_folder import locked_data_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS_PER_TASK = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of an audit."""

    bootstrap: str | None = None
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""
    folder: Path | None = None
    """The data folder of a stopped broker, instead of a running broker."""
    topics: tuple[str, ...] = ()
    """Empty for all topics except internal ones."""
    archive: Archive | None = None
    expected: tuple[ExpectedCount, ...] = ()
    compacted: tuple[str, ...] = ()
    """Topics that were compacted in the past, which their current configuration does not show."""
    time_is_strict: bool = False
    report: Path | None = None
    """The folder for the report; None writes none."""
    offsets_per_task: int = OFFSETS_PER_TASK

    @property
    def connection(self) -> dict[str, str]:
        """The options with which Spark connects to the cluster."""
        return connection_options(self.bootstrap or "", self.properties)


@dataclass(slots=True)
class AuditOutcome:
    """The result of an audit."""

    is_sound: bool
    headline: str
    source: str
    counts: Counts
    faults: list[Finding]
    notices: list[Finding]
    explained: list[Finding]
    partitions: list[PartitionResult]
    archived: list[ArchivedTopic] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    report: str | None = None


def run(session: "SparkSession", options: AuditOptions, progress: Progress) -> AuditOutcome:
    """Audit a broker or a data folder, and write the report."""
    began_ms = round(time.time() * 1000)
    held = nullcontext() if options.folder is None else locked_data_folder(str(options.folder))
    with held:
        info, splits, positions = _plan(options)
        with progress.tasks(session, "reading every batch"):
            results = check_partitions(batch_summaries(session, options.connection, splits), info)
    findings = check_counts(options.expected, results) + check_groups(positions, results)
    findings += _retention(results)
    archived = _archived(session, options, results, progress)
    findings += [finding for entry in archived for finding in entry.findings]
    outcome = outcome_of(str(options.folder or options.bootstrap), results, findings, archived)
    if options.report is not None:
        from runnel.pipelines.audit.page import audit_page
        from runnel.pipelines.report.writing import write_report

        outcome.report = str(options.report / "index.html")
        write_report(options.report, audit_page(outcome, began_ms), outcome)
    return outcome


def outcome_of(
    source: str,
    results: Sequence[PartitionResult],
    findings: Sequence[Finding],
    archived: list[ArchivedTopic],
) -> AuditOutcome:
    """All findings, by severity."""
    every = [finding for result in results for finding in result.findings] + list(findings)
    by_level = {level: [finding for finding in every if finding.level is level] for level in Level}
    counts, left_out = Counts(), dict[str, int]()
    for result in results:
        counts += result.counts
        for kind, count in result.left_out.items():
            left_out[kind] = left_out.get(kind, 0) + count
    # Records that are neither in the log nor in the archive.
    counts.lost += sum(
        finding.last_offset - finding.first_offset + 1 for finding in findings if finding.kind is Kind.LOST
    )
    faults = by_level[Level.FAULT]
    return AuditOutcome(
        not faults,
        headline(faults, left_out, counts, len(results)),
        source,
        counts,
        faults,
        by_level[Level.NOTICE],
        by_level[Level.EXPLAINED],
        list(results),
        archived,
        left_out,
    )


def headline(faults: Sequence[Finding], left_out: Mapping[str, int], counts: Counts, partitions: int) -> str:
    """A one-line summary."""
    if not faults:
        records = count_text(counts.records, "record")
        return f"Nothing is lost: {records} in {count_text(partitions, 'partition')}, all batches are valid"
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
) -> tuple[
    dict[tuple[str, int], PartitionInfo], list[tuple[Split, int]], Mapping[str, Mapping[TopicPartition, int]]
]:
    if options.folder is not None:
        return *_plan_folder(options, options.folder), {}
    if options.bootstrap is None:
        raise BadOption("nothing to audit: set a broker, or the data folder of a stopped broker")
    with BrokerView(options.bootstrap, properties=options.properties, client_id="runnel-audit") as broker:
        # Committed offsets first: a group that consumes meanwhile must not be beyond the end.
        positions = {group: broker.group_offsets(group) for group in broker.groups()}
        info = _broker_info(broker, options)
    splits: list[tuple[Split, int]] = [
        (split, known.start_offset)
        for known in info.values()
        for split in split_offsets(
            known.topic, known.partition, known.start_offset, known.end_offset, options.offsets_per_task
        )
    ]
    return info, splits, positions


def _plan_folder(
    options: AuditOptions, folder: Path
) -> tuple[dict[tuple[str, int], PartitionInfo], list[tuple[Split, int]]]:
    if options.archive is not None:
        raise BadOption("an archive can only be compared with a running broker, not with a data folder")
    found = [
        partition
        for partition in partitions_of(
            folder, compacted=options.compacted, time_is_strict=options.time_is_strict
        )
        if not options.topics or partition.info.topic in options.topics
    ]
    _check_found(options.topics, {partition.info.topic for partition in found})
    info = {(partition.info.topic, partition.info.partition): partition.info for partition in found}
    return info, [
        (segment, partition.info.start_offset) for partition in found for segment in partition.segments
    ]


def _check_found(wanted: Sequence[str], found: set[str]) -> None:
    missing = [topic for topic in wanted if topic not in found]
    if missing:
        raise PipelineError(f"there is no topic {', '.join(missing)}")


def _broker_info(broker: BrokerView, options: AuditOptions) -> dict[tuple[str, int], PartitionInfo]:
    topics = options.topics or tuple(view.name for view in broker.topics())
    partitions = broker.partitions(topics)
    # Ends first: retention between the two requests must not yield an end before its start.
    ends = broker.latest_offsets(partitions)
    starts = broker.earliest_offsets(partitions)
    compacted = {topic: topic in options.compacted or _is_compacted(broker, topic) for topic in topics}
    return {
        (partition.topic, partition.partition): PartitionInfo(
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


def _retention(results: Sequence[PartitionResult]) -> list[Finding]:
    """A log start offset above 0 is due to retention; only an archive shows whether records were lost."""
    return [
        Finding(
            Level.EXPLAINED,
            Kind.RETENTION,
            result.topic,
            result.partition,
            0,
            result.start_offset - 1,
            f"the log start offset is {result.start_offset}",
        )
        for result in results
        if result.start_offset > 0
    ]


def _archived(
    session: "SparkSession",
    options: AuditOptions,
    results: Sequence[PartitionResult],
    progress: Progress,
) -> list[ArchivedTopic]:
    if options.archive is None or options.bootstrap is None:
        return []
    topics = sorted({result.topic for result in results})
    archived = []
    for topic in topics:
        own = [result for result in results if result.topic == topic]
        with progress.tasks(session, f"comparing {topic} with its archive"):
            archived.append(
                compare(session, options.bootstrap, options.archive, topic, own, options.properties)
            )
    return archived
