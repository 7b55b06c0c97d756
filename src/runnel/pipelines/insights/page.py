"""Insights as a page."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from runnel.pipelines.insights.numbers import bucket_percentile, percentile
from runnel.pipelines.insights.proposals import SKEW_NOTABLE, skew_of
from runnel.pipelines.insights.traffic import BUCKETS_PER_OCTAVE, TopicTraffic, bucket_low
from runnel.pipelines.insights.words import disk_words, key_text, lag_words, verdict_of
from runnel.pipelines.report.charts import (
    SERIES_MAX,
    Bar,
    BarChart,
    Bin,
    Histogram,
    LineChart,
    Mark,
    Series,
)
from runnel.pipelines.report.page import Block, Cell, Figure, Half, Note, Page, Section, Table, Wide
from runnel.pipelines.report.strips import HeatStrips, Strip, sparkline
from runnel.pipelines.report.units import Unit, moment_text

if TYPE_CHECKING:
    from runnel.pipelines.insights.job import InsightsOutcome

_SPARKS = 48
_POINTS_MAX = 4000
_REST = "all others"


def insights_page(outcome: "InsightsOutcome") -> Page:
    """The whole report."""
    since = "all records" if outcome.since_ms is None else f"since {moment_text(outcome.since_ms)} UTC"
    began = f"{moment_text(outcome.began_ms)} UTC"
    sections = [
        _throughput(outcome),
        _sizes_and_keys(outcome),
        _spread(outcome),
        *_readers(outcome),
        _disk(outcome),
    ]
    return Page(
        "Runnel insights",
        f"{outcome.source} · {began} · {since}",
        verdict_of(outcome),
        _figures(outcome),
        sections,
        [("broker", outcome.source), ("made", began), ("records", since), ("data", "report.json")],
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
    lag, lag_note, lag_level = lag_words(outcome)
    disk, disk_note, disk_level = disk_words(outcome)
    delays = [delay.delay_ms for delay in outcome.delays]
    figures = [
        Figure(
            "Records",
            Unit.COUNT.text(records),
            Unit.BYTES.text(size_bytes),
            spark=_spark(outcome, totals),
        ),
        Figure("Busiest minute" if outcome.step_ms == 60_000 else "Peak", Unit.RECORDS_PER_S.text(peak)),
        Figure("Lag", lag, lag_note, lag_level),
        Figure("Disk full", disk, disk_note, disk_level),
    ]
    if delays:
        median = Unit.DURATION_MS.text(percentile(delays, 0.5))
        late = f"95 % within {Unit.DURATION_MS.text(percentile(delays, 0.95))}"
        figures.insert(2, Figure("End to end", median, late))
    return figures


def _spark(outcome: "InsightsOutcome", totals: dict[int, tuple[int, int]]) -> str:
    whole, step_ms = _whole(outcome, set(totals)), outcome.step_ms
    if len(whole) < 2:
        return ""
    first, last = min(whole), max(whole)
    # Whole steps, or some points would count one more than their neighbours.
    width = step_ms * max(1, -(-((last - first) // step_ms + 1) // _SPARKS))
    values = [0.0] * ((last - first) // width + 1)
    for step in whole:
        values[(step - first) // width] += totals[step][0]
    return sparkline(values, "records over time")


def _largest(outcome: "InsightsOutcome") -> list[TopicTraffic]:
    return sorted(outcome.traffic.values(), key=lambda each: (-each.size_bytes, each.topic))


def _throughput(outcome: "InsightsOutcome") -> Section:
    largest = _largest(outcome)
    shown = largest if len(largest) <= SERIES_MAX else largest[: SERIES_MAX - 1]
    rest = [each for each in largest if each not in shown]
    step_s = outcome.step_ms / 1000

    def chart(title: str, unit: Unit, column: int) -> LineChart:
        series = [Series(each.topic, _steps(outcome, [each], column, step_s)) for each in shown]
        if rest:
            series.append(Series(f"{_REST} ({len(rest)})", _steps(outcome, rest, column, step_s)))
        return LineChart(title, series, unit, is_filled=True)

    caption = f"Averages of {Unit.DURATION_MS.text(outcome.step_ms)}, by the records' timestamps."
    blocks: list[Block] = [
        Wide(chart("Records per second", Unit.RECORDS_PER_S, 0), caption),
        Wide(chart("Bytes per second", Unit.BYTES_PER_S, 1), "Keys and values, uncompressed."),
        _topics(outcome, largest),
    ]
    return Section("Throughput", blocks)


def _steps(
    outcome: "InsightsOutcome", topics: Sequence[TopicTraffic], column: int, step_s: float
) -> list[tuple[float, float]]:
    """Every step from the first record of any topic to the last: one without records is zero."""
    every = _whole(outcome, {step for each in outcome.traffic.values() for step in each.steps})
    if not every:
        return []
    first, last, step_ms = min(every), max(every), outcome.step_ms
    steps: Iterable[int] = range(first, last + step_ms, step_ms)
    if (last - first) // step_ms > _POINTS_MAX:
        steps = sorted(every & {step for each in topics for step in each.steps})
    return [(step, sum(each.steps.get(step, (0, 0))[column] for each in topics) / step_s) for step in steps]


def _whole(outcome: "InsightsOutcome", steps: set[int]) -> set[int]:
    """Without the step that is not over yet: it would look as if the traffic broke off."""
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
                # A bucket's middle may lie above all that is in it.
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
    median = bucket_percentile(sizes, 0.5, bucket_low)
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
    caption = "Those with more than a fifth of their topic stand out."
    blocks: list[Block] = [
        Half(histogram, "Key and value together."),
        Half(BarChart("Hot keys, by records", bars, Unit.COUNT), caption if bars else "No record has a key."),
    ]
    return Section("Messages", blocks)


def _octaves(sizes: dict[int, int]) -> list[Bin]:
    """Bins that double; nothing at all is a bin of its own."""
    if not sizes:
        return []
    octaves: dict[int, int] = {}
    for bucket, count in sizes.items():
        octave = bucket // BUCKETS_PER_OCTAVE if bucket >= 0 else -1
        octaves[octave] = octaves.get(octave, 0) + count
    low, high = min(octaves), max(octaves)
    # A lone bin says little: its neighbours are shown, too.
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
            "Beside each topic stands how many times the average its fullest partition has; "
            f"{SKEW_NOTABLE:.0f}× and more is uneven."
        )
        blocks.append(Wide(chart, caption))
    columns = ["topic", "#now", "#proposed", "advice", "why"]
    blocks.append(Table(columns, rows, "How many partitions"))
    return Section("How evenly it is spread", blocks)


def _readers(outcome: "InsightsOutcome") -> Iterable[Section]:
    if not outcome.lags and not outcome.lag_history:
        return
    largest = sorted(
        outcome.lag_history, key=lambda group: -max(lag for _, lag in outcome.lag_history[group])
    )
    # In order of their names, as below: a group keeps its colour.
    series = [Series(group, outcome.lag_history[group]) for group in sorted(largest[:SERIES_MAX])]
    blocks: list[Block] = []
    if series:
        caption = "From what each group committed, and how far the log had come by then."
        blocks.append(Wide(LineChart("Records behind", series, Unit.COUNT), caption))
    sampled = _sampled(outcome)
    if sampled:
        blocks.append(Wide(LineChart("Records behind, seen by earlier runs", sampled, Unit.COUNT)))
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
    blocks.append(
        Table(["group", "partition", "#committed", "#end", "#behind"], rows, "Lag now", rows_max=40)
    )
    yield Section("Readers", blocks)


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
        "to the commit that covers it. Groups commit at intervals: what a record really waited is less."
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
        blocks.append(Note("The brokers do not say how large their disks are."))
    else:
        now = outcome.began_ms
        before = [(sample.at_ms, float(sample.used_bytes)) for sample in outcome.samples]
        coming = [(now + after, used) for after, used in ahead.points]
        series = [Series("used", before), Series("forecast", coming, is_forecast=True)]
        marks = [Mark(now + ahead.full_after_ms, "full")] if ahead.full_after_ms is not None else []
        chart = LineChart(
            "Space on the disks", series, Unit.BYTES, marks=marks, ceiling=(ahead.total_bytes, "all there is")
        )
        caption = "Each topic goes on at its rate until its retention holds it back."
        blocks.append(Wide(chart, caption))
    rows = [
        [
            each.topic,
            Unit.BYTES.text(each.size_bytes),
            f"{Unit.BYTES.text(each.bytes_per_s * 86_400)} a day",
            "no limit" if each.limit_bytes is None else Unit.BYTES.text(each.limit_bytes),
        ]
        for each in sorted(outcome.growth, key=lambda each: -each.size_bytes)
    ]
    blocks.append(Table(["topic", "#on disk", "#written", "#retention lets it become"], rows, "Growth"))
    return Section("Growth", blocks)
