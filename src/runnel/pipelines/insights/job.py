"""The insights job: reads broker state, aggregates traffic in Spark, forecasts growth, and reports."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import UnknownTopic
from runnel.pipelines.insights.broker_facts import Disks, GroupLag, disks_of, lags_of, readers_of
from runnel.pipelines.insights.commits import OFFSETS_TOPIC
from runnel.pipelines.insights.forecast import Forecast, Growth, forecast, limit_of
from runnel.pipelines.insights.history import Sample, add_sample
from runnel.pipelines.insights.lag import EndOffsets, GroupCommit, lag_history, unchanged_offsets
from runnel.pipelines.insights.proposals import Load, Proposal, propose, skew_of
from runnel.pipelines.insights.traffic import (
    STEPS_MS,
    Delay,
    ReadWindow,
    TopicTraffic,
    add_keys,
    commits_of,
    traffic_of,
)
from runnel.pipelines.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsOptions:
    """The options of the job."""

    bootstrap: str
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""
    topics: tuple[str, ...] = ()
    """Empty for all topics except internal ones."""
    since_ms: int | None = None
    """The earliest timestamp to read; None for all records."""
    report: Path | None = None
    history: Path | None = None
    """The file with the samples of all runs; None to keep none."""


@dataclass(slots=True)
class TopicFacts:
    """The state of a topic on the brokers."""

    topic: str
    partitions: int
    replicas: int
    size_bytes: int
    records: int
    """The number of offsets, including transaction markers and compacted records."""
    retention_ms: int
    retention_bytes: int
    is_compacted: bool = False
    """Compaction only: retention does not limit its size."""
    readers: int = 0


@dataclass(slots=True)
class InsightsOutcome:
    """The result of the job."""

    source: str
    began_ms: int
    since_ms: int | None
    step_ms: int
    topics: list[TopicFacts]
    traffic: dict[str, TopicTraffic]
    lags: list[GroupLag]
    lag_history: dict[str, list[tuple[int, int]]]
    delays: list[Delay]
    proposals: list[Proposal]
    disks: Disks
    growth: list[Growth]
    forecast: Forecast | None
    samples: list[Sample] = field(default_factory=list)
    report: str | None = None


@dataclass(slots=True)
class _BrokerState:
    """The state of the brokers at the start of the job."""

    facts: list[TopicFacts]
    disks: Disks
    lags: list[GroupLag]
    has_commits: bool


def run(session: "SparkSession", options: InsightsOptions, progress: Progress) -> InsightsOutcome:
    """Analyse the traffic of a cluster and write the report."""
    now_ms = round(time.time() * 1000)
    state = _read_state(options)
    partitions = sum(facts.partitions for facts in state.facts)
    names = tuple(facts.topic for facts in state.facts)
    window = ReadWindow(options.bootstrap, names, options.since_ms, now_ms, options.properties)
    traffic: dict[str, TopicTraffic] = {}
    step_ms = STEPS_MS[0]
    commits: list[GroupCommit] = []
    delays: list[Delay] = []
    if names:
        with progress.tasks(session, "aggregating traffic"):
            traffic, step_ms = traffic_of(session, window, max(1, partitions))
        with progress.tasks(session, "counting keys"):
            add_keys(session, window, traffic)
    if names and state.has_commits:
        with progress.tasks(session, "reading offset commits"):
            commits, delays = commits_of(session, window, step_ms)
    outcome = outcome_of(options, now_ms, step_ms, state, traffic)
    commits += unchanged_offsets(state.lags, commits)
    logs = end_offsets_over_time(traffic, state.lags, step_ms, now_ms)
    outcome.lag_history = lag_history(commits, logs, step_ms, now_ms)
    outcome.delays = delays
    _record_sample(options, outcome)
    if options.report is not None:
        from runnel.pipelines.insights.page import insights_page
        from runnel.pipelines.report.writing import write_report

        outcome.report = str(options.report / "index.html")
        write_report(options.report, insights_page(outcome), outcome)
    return outcome


def outcome_of(
    options: InsightsOptions, now_ms: int, step_ms: int, state: _BrokerState, traffic: dict[str, TopicTraffic]
) -> InsightsOutcome:
    """The result, without lag history and delays."""
    proposals = [propose(load_of(facts, traffic[facts.topic], step_ms)) for facts in state.facts]
    growth = [growth_of(facts, traffic[facts.topic], now_ms, options.since_ms) for facts in state.facts]
    disks = state.disks
    ahead = None
    if disks.total_bytes > 0:
        ahead = forecast(growth, disks.total_bytes - disks.usable_bytes, disks.total_bytes)
    return InsightsOutcome(
        options.bootstrap,
        now_ms,
        options.since_ms,
        step_ms,
        state.facts,
        traffic,
        state.lags,
        {},
        [],
        proposals,
        disks,
        growth,
        ahead,
    )


def load_of(facts: TopicFacts, traffic: TopicTraffic, step_ms: int) -> Load:
    """The load of a topic, as input of a proposal."""
    sizes = [
        float(traffic.partitions[number].size_bytes) if number in traffic.partitions else 0.0
        for number in range(facts.partitions)
    ]
    peak = max((size_bytes for _, size_bytes in traffic.steps.values()), default=0) / (step_ms / 1000)
    top = traffic.hot_keys[0].records if traffic.hot_keys else 0
    return Load(
        facts.topic,
        facts.partitions,
        peak,
        skew_of(sizes),
        top / traffic.records if traffic.records else 0.0,
        traffic.keyed_records / traffic.records if traffic.records else 0.0,
        facts.readers,
        traffic.records,
    )


def growth_of(facts: TopicFacts, traffic: TopicTraffic, now_ms: int, since_ms: int | None) -> Growth:
    """The growth of a topic: records per second times the average size on disk."""
    began_ms = _began_ms(traffic, since_ms)
    if not traffic.records or not facts.records or began_ms is None:
        return Growth(facts.topic, facts.size_bytes, 0.0, None, facts.is_compacted)
    seconds = max(now_ms - began_ms, _MINUTE_MS) / 1000
    if facts.is_compacted:
        # At most one record per key remains. Offsets do not show how many remain, so the size on disk is
        # estimated from the size as written.
        mean_bytes = traffic.size_bytes / traffic.records * facts.replicas
        bytes_per_s = traffic.keys / seconds * mean_bytes
        return Growth(facts.topic, facts.size_bytes, bytes_per_s, None, is_compacted=True)
    bytes_per_s = traffic.records / seconds * facts.size_bytes / facts.records
    limit = limit_of(bytes_per_s, facts.replicas, facts.partitions, facts.retention_ms, facts.retention_bytes)
    return Growth(facts.topic, facts.size_bytes, bytes_per_s, limit)


def _began_ms(traffic: TopicTraffic, since_ms: int | None) -> int | None:
    """The start of the traffic; None if no record has a valid timestamp."""
    is_dated = traffic.unplaced < traffic.records
    # Average over the whole window or the age of the topic: a burst is not a sustained rate.
    is_new = all(partition.start == 0 for partition in traffic.partitions.values())
    if since_ms is None or (is_dated and is_new):
        return max(traffic.first_ms, since_ms or 0) if is_dated else None
    return since_ms


def end_offsets_over_time(
    traffic: Mapping[str, TopicTraffic], lags: Sequence[GroupLag], step_ms: int, now_ms: int
) -> dict[tuple[str, int], EndOffsets]:
    """The end offset of each partition at the end of each step."""
    # A partition without records in the window is unchanged.
    logs = {(each.topic, each.partition): EndOffsets([0], [each.end]) for each in lags}
    over_ms = now_ms - now_ms % step_ms + step_ms
    for topic, found in traffic.items():
        for number, partition in found.partitions.items():
            ends = {0: partition.start}
            highest = partition.start
            for step in sorted(partition.ends):
                highest = max(highest, partition.ends[step])
                # Timestamps in the future are clamped to now.
                ends[min(step + step_ms, over_ms)] = highest
            if partition.end > highest:
                ends[over_ms] = partition.end
            logs[topic, number] = EndOffsets(list(ends), list(ends.values()))
    return logs


def lag_now(lags: Sequence[GroupLag]) -> dict[str, int]:
    """The total lag of each group."""
    total: dict[str, int] = {}
    for each in lags:
        total[each.group] = total.get(each.group, 0) + each.lag
    return total


def _read_state(options: InsightsOptions) -> _BrokerState:
    with BrokerView(options.bootstrap, properties=options.properties, client_id="runnel-insights") as broker:
        names = tuple(dict.fromkeys(options.topics)) or tuple(view.name for view in broker.topics())
        disks = disks_of(broker)
        readers = readers_of(broker)
        facts = [_topic_facts(broker, name, disks, readers.get(name, 0)) for name in names]
        lags = lags_of(broker, names) if names else []
        try:
            has_commits = bool(broker.topic(OFFSETS_TOPIC).partitions)
        except UnknownTopic:
            has_commits = False
    return _BrokerState(facts, disks, lags, has_commits)


def _topic_facts(broker: BrokerView, name: str, disks: Disks, readers: int) -> TopicFacts:
    view = broker.topic(name)
    partitions = broker.partitions([name])
    ends, starts = broker.latest_offsets(partitions), broker.earliest_offsets(partitions)
    settings = broker.topic_settings(name)
    policies = {policy.strip() for policy in (settings.get("cleanup.policy") or "delete").split(",")}
    return TopicFacts(
        name,
        len(partitions),
        max((len(each.replicas) for each in view.partitions), default=1),
        sum(disks.sizes.get(partition, 0) for partition in partitions),
        sum(max(0, ends[partition] - starts[partition]) for partition in partitions),
        int(settings.get("retention.ms") or -1),
        int(settings.get("retention.bytes") or -1),
        "compact" in policies and "delete" not in policies,
        readers,
    )


def _record_sample(options: InsightsOptions, outcome: InsightsOutcome) -> None:
    disks = outcome.disks
    sample = Sample(
        outcome.began_ms,
        disks.total_bytes - disks.usable_bytes if disks.total_bytes > 0 else sum(disks.sizes.values()),
        disks.total_bytes,
        lag_now(outcome.lags),
    )
    if options.history is None:
        outcome.samples = [sample]
    else:
        outcome.samples = add_sample(options.history, sample)
