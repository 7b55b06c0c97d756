"""What members reported, combined: which member owned, read and committed what, and when."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

STILL = 1 << 62
"""The end of a span that has not ended."""

ABRUPT = ("killed", "lost")
"""Ends after which the next owner starts at the committed offset and rereads what follows."""


@dataclass(slots=True)
class Span:
    """The time in which one member owned one partition, and what it read."""

    partition: int
    member: str
    begin_ms: int
    end_ms: int = STILL
    end: str = "running"
    ranges: list[tuple[int, int]] = field(default_factory=list)
    committed: int = -1
    """The highest offset that this member knows it has committed."""
    commit_failed: bool = False


@dataclass(slots=True)
class Findings:
    """What is wrong, and figures."""

    faults: list[str] = field(default_factory=list)
    records: int = 0
    read_again: int = 0
    moves: int = 0
    commits: int = 0
    commits_failed: int = 0


class Ledger:
    """The events of all members, in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[str, list[dict[str, Any]]] = {}

    def add(self, member: str, event: dict[str, Any]) -> None:
        with self._lock:
            self._events.setdefault(member, []).append(event)

    def killed(self, member: str, at_ms: int) -> None:
        self.add(member, {"name": "killed", "timestamp": at_ms})

    def last_ms(self, name: str) -> int:
        """The time of the last event of this name; 0 if there is none."""
        with self._lock:
            times = [
                int(event["timestamp"])
                for events in self._events.values()
                for event in events
                # Some clients report an assignment without new partitions.
                if event["name"] == name and event.get("partitions", True)
            ]
        return max(times, default=0)

    def owned(self) -> dict[str, list[int]]:
        """What each running member reports to own."""
        return {
            member: sorted(span.partition for span in spans if span.end == "running")
            for member, spans in self._spans({}).items()
        }

    def read_until(self) -> dict[int, int]:
        """Partition → the offset after the last one that was read."""
        ends: dict[int, int] = {}
        for spans in self._spans({}).values():
            for span in spans:
                for _, last in span.ranges:
                    ends[span.partition] = max(ends.get(span.partition, 0), last + 1)
        return ends

    def findings(self) -> Findings:
        found = Findings()
        extra: dict[str, list[str]] = {}
        by_partition: dict[int, list[Span]] = {}
        for spans in self._spans(extra).values():
            for span in spans:
                by_partition.setdefault(span.partition, []).append(span)
        found.faults += [fault for faults in extra.values() for fault in faults]
        for spans in by_partition.values():
            spans.sort(key=lambda span: span.begin_ms)
            found.moves += len(spans) - 1
            found.faults += _overlaps(spans)
            _check_reads(spans, found)
        with self._lock:
            for event in (event for events in self._events.values() for event in events):
                if event["name"] == "offsets_committed":
                    found.commits += 1
                    found.commits_failed += not event["success"]
        return found

    def _spans(self, faults: dict[str, list[str]]) -> dict[str, list[Span]]:
        with self._lock:
            events = {member: list(reported) for member, reported in self._events.items()}
        histories = {member: _MemberHistory(member, faults.setdefault(member, [])) for member in events}
        for member, history in histories.items():
            for event in events[member]:
                history.take(event)
        return {member: history.spans for member, history in histories.items()}


@dataclass(slots=True)
class _MemberHistory:
    """The events of one member, converted to spans."""

    member: str
    faults: list[str]
    spans: list[Span] = field(default_factory=list)
    now: dict[int, Span] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        name, at_ms = event["name"], event["timestamp"]
        partitions = [each["partition"] for each in event.get("partitions", [])]
        match name:
            case "partitions_assigned":
                self._begin(partitions, at_ms)
            case "partitions_revoked" | "partitions_lost":
                self._end(partitions, name.removeprefix("partitions_"), at_ms)
            case "killed":
                self._end(list(self.now), name, at_ms)
            case "shutdown_complete":
                self._end(list(self.now), "left", at_ms)
            case "records_consumed":
                self._read(event["partitions"])
            case "offsets_committed":
                self._commit(event["offsets"], event["success"])

    def _begin(self, partitions: list[int], at_ms: int) -> None:
        for partition in partitions:
            if partition in self.now:
                self.faults.append(f"{self.member} was assigned {partition} twice")
            self.now[partition] = Span(partition, self.member, at_ms)
            self.spans.append(self.now[partition])

    def _end(self, partitions: list[int], how: str, at_ms: int) -> None:
        for partition in partitions:
            if span := self.now.pop(partition, None):
                span.end, span.end_ms = how, at_ms

    def _read(self, ranges: list[dict[str, int]]) -> None:
        for item in ranges:
            if span := self.now.get(item["partition"]):
                span.ranges.append((item["minOffset"], item["maxOffset"]))
            else:
                self.faults.append(f"{self.member} read {item} and does not own it")

    def _commit(self, offsets: list[dict[str, int]], is_done: bool) -> None:
        for each in offsets:
            if span := self.now.get(each["partition"]):
                span.committed = max(span.committed, each["offset"] if is_done else -1)
                span.commit_failed = not is_done


def _overlaps(spans: list[Span]) -> Iterator[str]:
    """Pairs of spans of one partition that overlap; a member that lost it may learn so late."""
    for index, span in enumerate(spans):
        for later in spans[index + 1 :]:
            if later.begin_ms < span.end_ms and span.end != "lost":
                yield (
                    f"partition {span.partition} is owned twice: {span.member} from {span.begin_ms} to"
                    f" {span.end_ms} ({span.end}), {later.member} from {later.begin_ms}"
                )


def _check_reads(spans: list[Span], found: Findings) -> None:
    """What was read of one partition, owner by owner: no offset is skipped, none is read twice.

    An owner rereads only if the one before could not commit, and then only from the committed offset.
    """
    following, highest, committed, may_reread = 0, 0, 0, False
    for span in spans:
        least = committed if may_reread else following
        for first, last in span.ranges:
            if not least <= first <= following:
                found.faults.append(
                    f"partition {span.partition}, {span.member} ({span.end}) read from {first};"
                    f" {following} would have followed, {committed} is committed"
                )
            found.records += last + 1 - first
            found.read_again += max(0, min(highest, last + 1) - first)
            following = least = last + 1
            highest = max(highest, following)
        committed = max(committed, span.committed)
        may_reread = span.end in ABRUPT or span.commit_failed or (may_reread and not span.ranges)
