"""The obvious twin of alerting: it keeps all that ever happened, and looks at all of it for each answer."""

from dataclasses import dataclass, field

WAIT_MS, INTERVAL_MS, REPEAT_MS = 30_000, 60_000, 300_000
STALE_MS = 45_000
KEPT_MS = 15 * 60_000
Name = tuple[str, str]
"""A rule and a series."""


@dataclass
class Step:
    """One evaluation: series in alarm, others that are not; the rest is unknown if data are missing."""

    at_ms: int
    active: frozenset[Name]
    inactive: frozenset[Name]
    is_missing: bool


@dataclass
class Delivered:
    at_ms: int
    rule: str
    firing: frozenset[Name]
    resolved: frozenset[Name]


@dataclass
class Twin:
    for_ms: dict[str, int]
    steps: list[Step] = field(default_factory=list)
    silences: list[tuple[Name, int, int]] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    flushed: dict[str, list[int]] = field(default_factory=dict)
    """When each group was looked at, or will be next (the last entry)."""
    due: dict[str, tuple[int, set[Name]]] = field(default_factory=dict)
    """From when a notification is due, and about what."""
    failures: dict[str, int] = field(default_factory=dict)

    def history(self, name: Name) -> list[tuple[int, str]]:
        """All states of a series, from the first evaluation on."""
        state, since, silent_since = "inactive", 0, None
        states: list[tuple[int, str]] = []
        for step in self.steps:
            holds = True if name in step.active else False if name in step.inactive else None
            if holds is None:
                silent_since = step.at_ms if silent_since is None else silent_since
                is_kept = step.is_missing and step.at_ms - silent_since < STALE_MS
                holds = None if is_kept else False
            else:
                silent_since = None
            if holds is True:
                if state in ("inactive", "resolved"):
                    state, since = "pending", step.at_ms
                if state == "pending" and step.at_ms - since >= self.for_ms[name[0]]:
                    state = "firing"
            elif holds is False:
                silent_since = None
                has_fired = any(earlier == "firing" for _, earlier in states)
                state = "resolved" if has_fired else "inactive"
            states.append((step.at_ms, state))
        return states

    def state(self, name: Name) -> str:
        states = self.history(name)
        return states[-1][1] if states else "inactive"

    def has_ended(self, name: Name) -> bool:
        """It has fired, and does not fire now."""
        has_fired = any(state == "firing" for _, state in self.history(name))
        return has_fired and self.state(name) != "firing"

    def is_silenced(self, name: Name, now_ms: int) -> bool:
        return any(name == each and begin <= now_ms < end for each, begin, end in self.silences)

    def notified(self, rule: str) -> set[Name]:
        """What the receiver believes to be firing."""
        believed: set[Name] = set()
        for each in self.deliveries:
            if each.rule == rule:
                believed = (believed | each.firing) - each.resolved
        return believed

    def last_notified_ms(self, rule: str) -> int | None:
        times = [each.at_ms for each in self.deliveries if each.rule == rule]
        return times[-1] if times else None

    def notification(self, rule: str, names: list[Name], now_ms: int) -> tuple[set[Name], set[Name]] | None:
        """What is to be delivered about a rule now, if anything."""
        mine = [name for name in names if name[0] == rule and not self.is_silenced(name, now_ms)]
        firing = {name for name in mine if self.state(name) == "firing"}
        resolved = {name for name in mine if self.has_ended(name)}
        if rule not in self.flushed:
            if not firing:
                return None
            self.flushed[rule] = [now_ms + WAIT_MS]
        if now_ms >= self.flushed[rule][-1]:
            self.flushed[rule].append(now_ms + INTERVAL_MS)
            believed, last_ms = self.notified(rule), self.last_notified_ms(rule)
            news = (firing - believed) | (resolved & believed)
            if news or (firing and last_ms is not None and now_ms - last_ms >= REPEAT_MS):
                from_ms, owed = self.due.get(rule, (now_ms, set()))
                self.due[rule] = from_ms, owed | news
        if rule not in self.due or self.due[rule][0] > now_ms:
            return None
        resolved &= self.notified(rule) | self.due[rule][1]
        if not firing and not resolved:
            del self.due[rule]
            self.failures[rule] = 0
            return None
        return firing, resolved

    def delivered(self, rule: str, firing: set[Name], resolved: set[Name], now_ms: int) -> None:
        self.deliveries.append(Delivered(now_ms, rule, frozenset(firing), frozenset(resolved)))
        self.due.pop(rule, None)
        self.failures[rule] = 0

    def failed(self, rule: str, now_ms: int) -> None:
        self.failures[rule] = self.failures.get(rule, 0) + 1
        pause_ms = min(5_000 * 2 ** (self.failures[rule] - 1), 300_000)
        self.due[rule] = now_ms + pause_ms, self.due[rule][1]
