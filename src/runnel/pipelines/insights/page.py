"""The HTML report of insights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from runnel.pipelines.insights.forecast import Growth
from runnel.pipelines.insights.numbers import bucket_percentile, percentile
from runnel.pipelines.insights.proposals import SKEW_NOTABLE, skew_of
from runnel.pipelines.insights.status import (
    disk_status,
    key_text,
    lag_status,
    others_of,
    status_of,
    unplaced_text,
)
from runnel.pipelines.insights.traffic import BUCKETS_PER_OCTAVE, TopicTraffic, bucket_low
from runnel.pipelines.report.page import Block, Cell, Figure, Half, Page, Paragraph, Section, Table, Wide
from runnel.visual.charts import (
    SERIES_MAX,
    Bar,
    BarChart,
    Bin,
    Histogram,
    LineChart,
    Mark,
    Series,
)
from runnel.visual.strips import HeatStrips, Strip, sparkline
from runnel.visual.units import Unit, moment_text

if TYPE_CHECKING:
    from runnel.pipelines.insights.job import InsightsOutcome

_SPARKS = 48
_POINTS_MAX = 2000
_REST = "all others"


def insights_page(outcome: "InsightsOutcome") -> Page:
    """The report page."""
    since = "all records" if outcome.since_ms is None else f"since {moment_text(outcome.since_ms)} UTC"
    began = f"{moment_text(outcome.began_ms)} UTC"
    sections = [
        _throughput(outcome),
        _sizes_and_keys(outcome),
        _spread(outcome),
        *_groups(outcome),
        _disk(outcome),
    ]
    return Page(
        "Runnel insights",
        f"{outcome.source} · {began} · {since}",
        status_of(outcome),
        _figures(outcome),
        sections,
        [("broker", outcome.source), ("created", began), ("records", since), ("data", "report.json")],
    )


def _figures(outcome: "InsightsOutcome") -> list[Figure]:
    traffic = list(outcome.traffic.values())
    records, size_bytes = sum(each.records for each in traffic), sum(each.size_bytes for each in traffic)
    totals: dict[int, tuple[int, int]] = {}
    for each in traffic:
        for step, (count, size) in each.steps.items():
            before = totals.get(step, (0, 0))
            totals[step] = before[0] + count, before[1] + size
    peak = max((count for count, _ in totals.values()), default=0) / (outcome.step_ms / 1000)
    lag, lag_note, lag_level = lag_status(outcome)
    disk, disk_note, disk_level = disk_status(outcome)
    delays = [delay.delay_ms for delay in outcome.delays]
    figures = [
        Figure(
            "Records",
            Unit.COUNT.text(records),
            Unit.BYTES.text(size_bytes),
            spark=_spark(outcome, totals),
        ),
        _peak(outcome, peak),
        Figure("Lag", lag, lag_note, lag_level),
        Figure("Disk full", disk, disk_note, disk_level),
    ]
    if delays:
        median = Unit.DURATION_MS.text(percentile(delays, 0.5))
        late = f"95 % within {Unit.DURATION_MS.text(percentile(delays, 0.95))}"
        figures.insert(2, Figure("End to end", median, late))
    return figures


def _peak(outcome: "InsightsOutcome", records_per_s: float) -> Figure:
    text = Unit.RECORDS_PER_S.text(records_per_s)
    if outcome.step_ms == 60_000:
        return Figure("Busiest minute", text)
    return Figure("Peak", text, f"over {Unit.DURATION_MS.text(outcome.step_ms)}")


def _spark(outcome: "InsightsOutcome", steps: Mapping[int, tuple[int, int]]) -> str:
    intervals = _intervals(_every(outcome), outcome.step_ms, _SPARKS)
    if len(intervals) < 2 or not steps:
        return ""
    return sparkline(_sums(intervals, steps, 0), "records over time")


def _largest(outcome: "InsightsOutcome") -> list[TopicTraffic]:
    return sorted(outcome.traffic.values(), key=lambda each: (-each.size_bytes, each.topic))


def _throughput(outcome: "InsightsOutcome") -> Section:
    largest = _largest(outcome)
    shown = largest if len(largest) <= SERIES_MAX else largest[: SERIES_MAX - 1]
    rest = [each for each in largest if each not in shown]
    intervals = _intervals(_every(outcome), outcome.step_ms, _POINTS_MAX)

    def points(topics: Sequence[TopicTraffic], column: int) -> list[tuple[float, float]]:
        sums = [_sums(intervals, each.steps, column) for each in topics]
        rates = [sum(several) * 1000 / intervals.step for several in zip(*sums, strict=True)]
        return [(float(at_ms), rate) for at_ms, rate in zip(intervals, rates, strict=True)]

    def chart(title: str, unit: Unit, column: int) -> LineChart:
        series = [Series(each.topic, points([each], column)) for each in shown]
        if rest:
            series.append(Series(f"{_REST} ({len(rest)})", points(rest, column)))
        return LineChart(title, series, unit, is_filled=True)

    caption = f"Averages of {Unit.DURATION_MS.text(intervals.step)}, by the records' timestamps."
    caption += unplaced_text(outcome)
    blocks: list[Block] = [
        Wide(chart("Records per second", Unit.RECORDS_PER_S, 0), caption),
        Wide(chart("Bytes per second", Unit.BYTES_PER_S, 1), "Keys and values, uncompressed."),
        _topics(outcome, largest),
    ]
    return Section("Throughput", blocks)


def _intervals(every: set[int], step_ms: int, points_max: int) -> range:
    """The starts of equally long intervals, at most `points_max`."""
    if not every:
        return range(0, 0, step_ms)
    first, end = min(every), max(every) + step_ms
    width_ms = step_ms * -(-((end - first) // step_ms) // points_max)
    return range(first, end - width_ms + 1, width_ms)


def _sums(intervals: range, steps: Mapping[int, tuple[int, int]], column: int) -> list[float]:
    """The sum per interval; zero without records."""
    sums = [0.0] * len(intervals)
    for step, amounts in steps.items():
        index = (step - intervals.start) // intervals.step
        if 0 <= index < len(sums):
            sums[index] += amounts[column]
    return sums


def _every(outcome: "InsightsOutcome") -> set[int]:
    """All steps with records of any topic, so that all charts share one time axis.

    The current, incomplete step is excluded: it would look like a drop in traffic.
    """
    steps = {step for each in outcome.traffic.values() for step in each.steps}
    whole = {step for step in steps if step + outcome.step_ms <= outcome.began_ms}
    return whole if len(whole) > 1 else steps


def _topics(outcome: "InsightsOutcome", largest: Sequence[TopicTraffic]) -> Table:
    facts = {each.topic: each for each in outcome.topics}
    rows = []
    for each in largest:
        known = facts[each.topic]
        rows.append(
            [
                each.topic,
                known.partitions,
                f"{each.records:,}",
                Unit.BYTES.text(each.size_bytes),
                Unit.BYTES.text(known.size_bytes),
                # The middle of a bucket may be above its largest value.
                Unit.BYTES.text(min(bucket_percentile(each.sizes, 0.5, bucket_low), each.largest_bytes)),
                Unit.BYTES.text(each.largest_bytes),
                Cell(markup=_spark(outcome, each.steps)),
            ]
        )
    columns = ["topic", "#partitions", "#records", "#bytes", "#on disk", "#median", "#largest", "over time"]
    return Table(columns, rows, "Topics", "there are no topics")


def _sizes_and_keys(outcome: "InsightsOutcome") -> Section:
    sizes: dict[int, int] = {}
    for each in outcome.traffic.values():
        for bucket, count in each.sizes.items():
            sizes[bucket] = sizes.get(bucket, 0) + count
    largest_bytes = max((each.largest_bytes for each in outcome.traffic.values()), default=0)
    median = min(bucket_percentile(sizes, 0.5, bucket_low), largest_bytes)
    marks = [Mark(median, f"median {Unit.BYTES.text(median)}")] if sizes else []
    histogram = Histogram("Message sizes", _octaves(sizes), Unit.BYTES, marks)
    keys = [(each, hot) for each in outcome.traffic.values() for hot in each.hot_keys]
    keys.sort(key=lambda entry: -entry[1].records)
    bars = [
        Bar(
            f"{key_text(hot.key)} · {each.topic}",
            hot.records,
            "warn" if hot.records > 0.2 * each.records and each.keys > 1 else "plain",
            f"{each.topic}, key {key_text(hot.key)}: {hot.records:,} ({hot.records / each.records:.1%})",
        )
        for each, hot in keys[:8]
    ]
    caption = "Keys with more than 20 % of the records of their topic are highlighted."
    blocks: list[Block] = [
        Half(histogram, "Key and value together."),
        Half(BarChart("Hot keys, by records", bars, Unit.COUNT), caption if bars else "No record has a key."),
    ]
    return Section("Messages", blocks)


def _octaves(sizes: dict[int, int]) -> list[Bin]:
    """Bins of powers of two; size 0 has its own bin."""
    if not sizes:
        return []
    octaves: dict[int, int] = {}
    for bucket, count in sizes.items():
        octave = bucket // BUCKETS_PER_OCTAVE if bucket >= 0 else -1
        octaves[octave] = octaves.get(octave, 0) + count
    low, high = min(octaves), max(octaves)
    # Include the neighbours of the outer bins.
    low, high = max(-1, low - 1), high + 1
    return [
        Bin(0.0 if octave < 0 else float(2**octave), float(2 ** (octave + 1)), octaves.get(octave, 0))
        for octave in range(low, high + 1)
    ]


def _spread(outcome: "InsightsOutcome") -> Section:
    strips = []
    for facts in outcome.topics:
        found = outcome.traffic[facts.topic].partitions
        values = [
            float(found[number].size_bytes) if number in found else 0.0 for number in range(facts.partitions)
        ]
        if facts.partitions > 1:
            strips.append(Strip(facts.topic, values, f"{skew_of(values):.1f}×"))
    strips.sort(key=lambda strip: -skew_of(list(strip.values)))
    rows = []
    for proposal, facts in zip(outcome.proposals, outcome.topics, strict=True):
        change = proposal.issue or "keep"
        rows.append(
            [
                facts.topic,
                facts.partitions,
                proposal.partitions,
                Cell(change, proposal.level),
                proposal.reason,
            ]
        )
    rows.sort(key=lambda row: getattr(row[3], "level", "") != "warn")
    blocks: list[Block] = []
    if strips:
        chart = HeatStrips("Bytes by partition", strips[:20], Unit.BYTES)
        caption = (
            "The skew beside each topic is its largest partition relative to the average; "
            f"{SKEW_NOTABLE:.0f}× and more is uneven, unless there are only a few records."
        )
        blocks.append(Wide(chart, caption))
    columns = ["topic", "#now", "#proposed", "advice", "why"]
    blocks.append(Table(columns, rows, "Number of partitions"))
    return Section("Distribution over partitions", blocks)


def _groups(outcome: "InsightsOutcome") -> Iterable[Section]:
    if not outcome.lags and not outcome.lag_history:
        return
    largest = sorted(
        outcome.lag_history, key=lambda group: -max(lag for _, lag in outcome.lag_history[group])
    )
    # Sorted by name, as below, so that a group keeps its colour.
    series = [Series(group, outcome.lag_history[group]) for group in sorted(largest[:SERIES_MAX])]
    blocks: list[Block] = []
    if series:
        caption = "From the offset commits of each group and the end offsets at the time."
        blocks.append(Wide(LineChart("Lag in records", series, Unit.COUNT), caption))
    sampled = _sampled(outcome)
    if sampled:
        blocks.append(Wide(LineChart("Lag, sampled by earlier runs", sampled, Unit.COUNT)))
    blocks += _delays(outcome)
    rows = [
        [
            each.group,
            f"{each.topic}-{each.partition}",
            f"{each.committed:,}",
            f"{each.end:,}",
            f"{each.lag:,}",
        ]
        for each in sorted(outcome.lags, key=lambda each: -each.lag)
    ]
    blocks.append(Table(["group", "partition", "#committed", "#end", "#lag"], rows, "Lag now", rows_max=40))
    yield Section("Consumer groups", blocks)


def _sampled(outcome: "InsightsOutcome") -> list[Series]:
    groups = sorted({group for sample in outcome.samples for group in sample.lag})[:SERIES_MAX]
    if len(outcome.samples) < 2:
        return []
    return [
        Series(
            group, [(sample.at_ms, sample.lag[group]) for sample in outcome.samples if group in sample.lag]
        )
        for group in groups
    ]


def _delays(outcome: "InsightsOutcome") -> Iterable[Block]:
    if not outcome.delays:
        return
    by_group: dict[str, dict[int, list[int]]] = {}
    for delay in outcome.delays:
        steps = by_group.setdefault(delay.group, {})
        steps.setdefault(delay.at_ms - delay.at_ms % outcome.step_ms, []).append(delay.delay_ms)
    series = [
        Series(group, [(step, percentile(steps[step], 0.5)) for step in sorted(steps)])
        for group, steps in sorted(by_group.items())[:SERIES_MAX]
    ]
    caption = (
        "From a record's timestamp (the producer's clock, or the broker's where the topic stamps on append) "
        "to the commit that covers it. Groups commit at intervals, so the actual delay is shorter."
    )
    yield Wide(LineChart("End-to-end delay, median", series, Unit.DURATION_MS), caption)
    rows = []
    for group, steps in sorted(by_group.items()):
        every = [delay_ms for delays in steps.values() for delay_ms in delays]
        shares = [Unit.DURATION_MS.text(percentile(every, share)) for share in (0.5, 0.95, 1.0)]
        rows.append([group, f"{len(every):,}", *shares])
    yield Table(["group", "#commits", "#median", "#95 % within", "#longest"], rows, "Delay by group")


def _disk(outcome: "InsightsOutcome") -> Section:
    blocks: list[Block] = []
    ahead = outcome.forecast
    if ahead is None:
        blocks.append(Paragraph("The brokers do not report the size of their disks."))
    else:
        now = outcome.began_ms
        before = [(sample.at_ms, float(sample.used_bytes)) for sample in outcome.samples]
        coming = [(now + after, used) for after, used in ahead.points]
        series = [Series("used", before), Series("forecast", coming, is_forecast=True)]
        marks = [Mark(now + ahead.full_after_ms, "full")] if ahead.full_after_ms is not None else []
        chart = LineChart(
            "Disk usage", series, Unit.BYTES, marks=marks, ceiling=(ahead.total_bytes, "capacity")
        )
        caption = "Each topic grows at its current rate until retention limits it."
        if others := others_of(outcome):
            more = "One more topic is" if others == 1 else f"{others:,} more topics are"
            caption += f" {more} on these disks and may grow as well, but not part of this report."
        blocks.append(Wide(chart, caption))
    rows = [
        [
            each.topic,
            Unit.BYTES.text(each.size_bytes),
            Unit.BYTES.text(each.bytes_per_s * 86_400),
            _limit_text(each),
        ]
        for each in sorted(outcome.growth, key=lambda each: -each.size_bytes)
    ]
    columns = ["topic", "#on disk", "#per day", "#limit by retention"]
    blocks.append(Table(columns, rows, "Growth"))
    return Section("Growth", blocks)


def _limit_text(growth: Growth) -> str:
    if growth.is_compacted:
        return "one record per key"
    if not growth.bytes_per_s:
        return "–"
    return "no limit" if growth.limit_bytes is None else Unit.BYTES.text(growth.limit_bytes)
