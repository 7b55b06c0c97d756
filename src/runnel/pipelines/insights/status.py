"""The overall status of the insights, as text."""

from typing import TYPE_CHECKING

from runnel.pipelines.report.page import Status
from runnel.visual.units import Unit, moment_text

if TYPE_CHECKING:
    from runnel.pipelines.insights.job import InsightsOutcome

_SOON_MS = 14 * 86_400_000
_URGENT_MS = 2 * 86_400_000
_MINUTE_MS = 60_000
_KEY_SHOWN = 40


def status_of(outcome: "InsightsOutcome") -> Status:
    """The headline: the warnings, or the total traffic if there are none."""
    warnings = []
    level = "good"
    ahead = outcome.forecast
    if ahead is not None and ahead.full_after_ms is not None and ahead.full_after_ms <= _SOON_MS:
        warnings.append(f"the disks are full {_full_text(ahead.full_after_ms)}")
        level = "bad" if ahead.full_after_ms <= _URGENT_MS else "warn"
    behind = growing_lags(outcome)
    if behind:
        warnings.append(f"{_named(behind, 'group')} {'falls' if len(behind) == 1 else 'fall'} behind")
    for issue, words in (("too few partitions", "too few partitions"), ("uneven", "uneven partitions")):
        topics = [proposal.topic for proposal in outcome.proposals if proposal.issue == issue]
        if topics:
            warnings.append(f"{_named(topics, 'topic')} {'has' if len(topics) == 1 else 'have'} {words}")
    records = sum(each.records for each in outcome.traffic.values())
    size_bytes = sum(each.size_bytes for each in outcome.traffic.values())
    topics_text = "1 topic" if len(outcome.topics) == 1 else f"{len(outcome.topics)} topics"
    flow = f"{records:,} records, {Unit.BYTES.text(size_bytes)}, in {topics_text}"
    if not warnings:
        return Status("good" if records else "plain", "No issues" if records else "No records", flow)
    text = "; ".join(warnings)
    return Status("warn" if level == "good" else level, text[0].upper() + text[1:], flow)


def _full_text(after_ms: int) -> str:
    return "now" if after_ms < _MINUTE_MS else f"in {Unit.DURATION_MS.text(after_ms)}"


def _named(names: list[str], noun: str) -> str:
    return f"{noun} {names[0]}" if len(names) == 1 else f"{len(names)} {noun}s"


def growing_lags(outcome: "InsightsOutcome") -> list[str]:
    """Groups whose lag grows from the first to the last third of the history."""
    growing = []
    for group, points in sorted(outcome.lag_history.items()):
        lags = [lag for _, lag in points]
        if len(lags) >= 6:
            third = len(lags) // 3
            parts = [sum(lags[start : start + third]) / third for start in (0, third, len(lags) - third)]
            is_growing = parts[0] < 0.8 * parts[1] and parts[1] < 0.8 * parts[2]
            if is_growing and lags[-1] >= 0.8 * max(lags):
                growing.append(group)
    return growing


def lag_status(outcome: "InsightsOutcome") -> tuple[str, str, str]:
    """(lag, group, level)"""
    total: dict[str, int] = {}
    for each in outcome.lags:
        total[each.group] = total.get(each.group, 0) + each.lag
    if not total:
        return "–", "no consumer groups", "plain"
    worst = max(total, key=lambda group: total[group])
    level = "warn" if worst in growing_lags(outcome) else "plain" if total[worst] else "good"
    return (
        Unit.COUNT.text(sum(total.values())),
        f"most in {worst}" if total[worst] else "all groups are up to date",
        level,
    )


def disk_status(outcome: "InsightsOutcome") -> tuple[str, str, str]:
    """(time until full, growth, level)"""
    ahead = outcome.forecast
    if ahead is None:
        return "–", "sizes are not reported", "plain"
    growth = f"{Unit.BYTES.text(ahead.bytes_per_day)} a day"
    if others_of(outcome):
        growth += " from these topics"
    if ahead.full_after_ms is None:
        return "not within 5 years", growth, "good"
    level = (
        "bad" if ahead.full_after_ms <= _URGENT_MS else "warn" if ahead.full_after_ms <= _SOON_MS else "good"
    )
    when = moment_text(outcome.began_ms + ahead.full_after_ms)[:10]
    return _full_text(ahead.full_after_ms), f"{when}; {growth}", level


def others_of(outcome: "InsightsOutcome") -> int:
    """The number of topics on the disks that are not part of the report."""
    seen = {facts.topic for facts in outcome.topics}
    # Internal topics stay small.
    return len(
        {partition.topic for partition in outcome.disks.sizes if not partition.topic.startswith("__")} - seen
    )


def unplaced_text(outcome: "InsightsOutcome") -> str:
    """A sentence about records with invalid timestamps, or nothing."""
    counts = {each.topic: each.unplaced for each in outcome.traffic.values() if each.unplaced}
    if not counts:
        return ""
    where, total = _named(sorted(counts), "topic"), sum(counts.values())
    which = "record has a timestamp" if total == 1 else "records have timestamps"
    return f" In {where}, {total:,} {which} outside the window: counted, but not drawn."


def key_text(key: bytes | None) -> str:
    """A key for display."""
    if key is None:
        return "none"
    if not key:
        return "empty"
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    # The bytes of a number are often valid, but not printable, UTF-8.
    text = text if text.isprintable() and text else key.hex()
    return text if len(text) <= _KEY_SHOWN else text[:_KEY_SHOWN] + "…"
