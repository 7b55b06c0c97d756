"""States, silences, groups and repetition, compared with an obvious twin; restarts change nothing."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.alerts import conditions
from runnel.observe.alerts.alert import RESOLVED_RETENTION_MS, fingerprint
from runnel.observe.alerts.alerting import ALERTS_PER_RULE_MAX, Alerting, Route
from runnel.observe.alerts.groups import Notification
from runnel.observe.alerts.rules import CRITICAL, WARNING, Rule
from runnel.observe.alerts.series import BrokerState, Need, Snapshot, labels_of
from runnel.observe.alerts.settings import AlertSettings
from runnel.observe.alerts.silences import Matcher, Silence
from tests.observe.alerts.twin import INTERVAL_MS, REPEAT_MS, STALE_MS, WAIT_MS, Name, Step, Twin

STEP_MS = 15_000
START_MS = 1_800_000_000_000
FOR_MS = {"Soon": 0, "Later": 30_000}
SERIES = ("a", "b")
NAMES: list[Name] = [(rule, series) for rule in FOR_MS for series in SERIES]


def rule(name: str, for_ms: int, severity: str = WARNING) -> Rule:
    need = Need(name.lower(), ("series",), per_broker=False)
    condition = conditions.above(need, "limit")
    text = "{{ $labels.series }} at {{ $value }}"
    return Rule(name, severity, for_ms, text, text, "", condition, (need,), {"limit": 0})


SETTINGS = AlertSettings(
    rules=tuple(rule(name, for_ms) for name, for_ms in FOR_MS.items()),
    stale_after_ms=STALE_MS,
    group_wait_ms=WAIT_MS,
    group_interval_ms=INTERVAL_MS,
    repeat_interval_ms=REPEAT_MS,
)


OPS = (Route("ops"),)


def new_alerting() -> Alerting:
    return Alerting(SETTINGS, OPS)


def snapshot(at_ms: int, active: frozenset[Name], inactive: frozenset[Name], is_missing: bool) -> Snapshot:
    metrics: dict[str, list] = {name.lower(): [] for name in FOR_MS}
    for (name, series), value in [*((each, 1.0) for each in active), *((each, 0.0) for each in inactive)]:
        metrics[name.lower()].append(((("series", series),), value))
    brokers = (BrokerState(1, metrics), *([BrokerState(2, None)] if is_missing else []))
    return Snapshot(at_ms, brokers)


names = st.sampled_from(NAMES)
evaluation = st.tuples(
    st.just("evaluate"),
    st.lists(st.sampled_from(("active", "active", "inactive", "unknown")), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from((1, 1, 1, 2, 7)),
)
actions = st.lists(
    st.one_of(
        evaluation,
        evaluation,
        evaluation,
        st.tuples(st.just("silence"), names, st.integers(1, 12)),
        st.tuples(st.just("expire")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("deliver"), st.booleans()),
    ),
    max_size=60,
)


class Pair:
    """Alerting and its twin, side by side."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.alerting = new_alerting()
        self.twin = Twin(FOR_MS)
        self.silences: list[Silence] = []
        self.is_accepting = True

    def evaluate(self, states: list[str], is_missing: bool, steps: int) -> None:
        self.now_ms += STEP_MS * steps
        active = frozenset(name for name, state in zip(NAMES, states, strict=True) if state == "active")
        inactive = frozenset(name for name, state in zip(NAMES, states, strict=True) if state == "inactive")
        self.alerting.evaluate(snapshot(self.now_ms, active, inactive, is_missing))
        self.twin.steps.append(Step(self.now_ms, active, inactive, is_missing))
        found = {(alert.name, alert.labels["series"]): alert.state for alert in self.alerting.alerts.values()}
        for name in NAMES:
            expected = self.twin.state(name)
            # A resolved alert is forgotten some time later.
            assert found.get(name, "inactive") == expected or (name not in found and expected == "resolved")
        self.notify()

    def notify(self) -> None:
        due = {each.group_labels["alertname"]: each for each in self.alerting.due(self.now_ms)}
        for name in FOR_MS:
            expected = self.twin.notification(name, NAMES, self.now_ms)
            shown = None if name not in due else (_names(due[name].firing), _names(due[name].resolved))
            assert shown == expected
            if name in due:
                self.outcome(name, due[name])

    def outcome(self, name: str, notification: Notification) -> None:
        firing, resolved = _names(notification.firing), _names(notification.resolved)
        if self.is_accepting:
            self.alerting.delivered(notification, self.now_ms)
            self.twin.delivered(name, firing, resolved, self.now_ms)
        else:
            self.alerting.failed(notification, "refused", self.now_ms)
            self.twin.failed(name, self.now_ms)

    def silence(self, name: Name, steps: int) -> None:
        matchers = (Matcher("alertname", "=", name[0]), Matcher("series", "=~", name[1]))
        ends_ms = self.now_ms + steps * STEP_MS
        silence = Silence(f"s{len(self.silences)}", matchers, self.now_ms, ends_ms, "why", "who")
        self.silences.append(silence)
        self.alerting.silence_changed(*silence.to_record())
        self.twin.silences.append((name, self.now_ms, ends_ms))

    def expire(self) -> None:
        for index, silence in enumerate(self.silences):
            self.silences[index] = silence.expired(self.now_ms)
            self.alerting.silence_changed(*self.silences[index].to_record())
        self.twin.silences = [(name, begin, min(end, self.now_ms)) for name, begin, end in self.twin.silences]

    def restart(self) -> None:
        records = self.alerting.records()
        self.alerting = new_alerting()
        self.alerting.restore(records)
        assert self.alerting.records() == records

    def deliver(self, is_accepting: bool) -> None:
        self.is_accepting = is_accepting


def _names(alerts) -> set[Name]:
    return {(alert.name, alert.labels["series"]) for alert in alerts}


@given(actions)
def test_it_does_what_its_twin_does(given_actions):
    pair = Pair()
    for verb, *arguments in given_actions:
        if pair.now_ms - START_MS >= RESOLVED_RETENTION_MS:
            # From here on resolved alerts are forgotten, which the twin never does.
            return
        getattr(pair, verb)(*arguments)


class Receiver:
    """Drives alerting with one series, and collects what is delivered."""

    def __init__(self, settings: AlertSettings = SETTINGS, routes: Sequence[Route] = OPS) -> None:
        self.now_ms = START_MS
        self.alerting = Alerting(settings, routes)
        self.heard: list[tuple[int, str, str]] = []
        self.is_accepting = True

    def run(self, states: str) -> None:
        """One evaluation for each character: + in alarm, - not, . no data."""
        for state in states:
            self.now_ms += STEP_MS
            active = frozenset({("Soon", "a")} if state == "+" else ())
            inactive = frozenset({("Soon", "a")} if state == "-" else ())
            self.alerting.evaluate(snapshot(self.now_ms, active, inactive, state == "."))
            for each in self.alerting.due(self.now_ms):
                if self.is_accepting:
                    status = "firing" if each.is_firing else "resolved"
                    self.heard.append(((self.now_ms - START_MS) // STEP_MS, each.receiver, status))
                    self.alerting.delivered(each, self.now_ms)
                else:
                    self.alerting.failed(each, "refused", self.now_ms)


def test_an_alert_that_is_pending_again_is_resolved_to_its_receivers():
    settings = replace(SETTINGS, rules=(rule("Soon", 45_000),))
    receiver = Receiver(settings)
    receiver.run("+" * 10 + "-" + "+-" * 10)
    assert [status for _, _, status in receiver.heard] == ["firing", "resolved"]


def test_one_notification_when_it_fires_and_one_when_it_is_resolved():
    receiver = Receiver()
    receiver.run("+" * 10 + "-" * 10)
    assert receiver.heard == [(3, "ops", "firing"), (11, "ops", "resolved")]


def test_a_notification_is_repeated_while_the_alert_fires():
    receiver = Receiver()
    receiver.run("+" * 50)
    # Every 300 seconds, when the group is looked at.
    assert receiver.heard == [(3, "ops", "firing"), (23, "ops", "firing"), (43, "ops", "firing")]


def test_an_alert_that_is_resolved_while_the_receiver_refuses_is_not_lost():
    receiver = Receiver()
    receiver.is_accepting = False
    receiver.run("+" * 5 + "-" * 5)
    [group] = receiver.alerting.groups.values()
    assert (group.notified["ops"].error, group.notified["ops"].attempts > 1) == ("refused", True)
    receiver.is_accepting = True
    receiver.run("-" * 40)
    assert [status for _, _, status in receiver.heard] == ["resolved"]


def test_a_resolved_alert_is_kept_until_its_receivers_know():
    receiver = Receiver()
    receiver.run("+" * 5)
    receiver.is_accepting = False
    receiver.run("-" * (RESOLVED_RETENTION_MS // STEP_MS + 20))
    assert [alert.state for alert in receiver.alerting.alerts.values()] == ["resolved"]
    receiver.is_accepting = True
    receiver.run("-" * 40)
    assert [status for _, _, status in receiver.heard] == ["firing", "resolved"]
    assert (receiver.alerting.alerts, receiver.alerting.groups) == ({}, {})


def test_receivers_are_notified_of_their_severities():
    settings = AlertSettings(rules=(rule("Soon", 0, CRITICAL),), group_wait_ms=0)
    routes = [Route("all"), Route("pager", frozenset({CRITICAL})), Route("tickets", frozenset({WARNING}))]
    receiver = Receiver(settings, routes)
    receiver.run("+")
    assert {name for _, name, _ in receiver.heard} == {"all", "pager"}


def test_a_notification_in_flight_is_not_due_again():
    receiver = Receiver()
    receiver.is_accepting = False
    receiver.run("++")
    receiver.now_ms += STEP_MS
    [notification] = receiver.alerting.due(receiver.now_ms)
    assert receiver.alerting.due(receiver.now_ms + REPEAT_MS) == []
    receiver.alerting.failed(notification, "too late", receiver.now_ms)
    assert len(receiver.alerting.due(receiver.now_ms + REPEAT_MS)) == 1


def test_a_rule_that_is_disabled_resolves_its_alerts():
    receiver = Receiver()
    receiver.run("++++")
    records = receiver.alerting.records()
    receiver.alerting = Alerting(AlertSettings(rules=(), group_interval_ms=INTERVAL_MS), [Route("ops")])
    receiver.alerting.restore(records)
    receiver.run("-" * 10)
    assert [status for _, _, status in receiver.heard] == ["firing", "resolved"]


def test_records_that_are_not_valid_are_left_out():
    receiver = Receiver()
    receiver.run("++++")
    records = receiver.alerting.records()
    # Of another version, with a field more.
    key, text = next((key, text) for key, text in records.items() if key.startswith("alert/"))
    newer = {**records, key: text.replace("{", '{"more":1,', 1)}
    bad = {
        "alert/1": "{",
        "alert/2": '{"labels":{},"state":"firing","active_ms":0,"value":1,"value_ms":0}',
        "group/1": '{"labels":{}}',
        "silence/1": "[]",
        "history/7": '[[1,{"x":1}],2]',
        "history/raw": "{}",
    }
    alerting = new_alerting()
    assert set(alerting.restore({**newer, **bad, "other": "x"})) == set(bad)
    assert list(alerting.alerts) == list(receiver.alerting.alerts)


def test_the_number_of_alerts_is_limited():
    alerting = new_alerting()
    series = [(labels_of({"series": str(number)}), 1.0) for number in range(ALERTS_PER_RULE_MAX + 50)]
    alerting.evaluate(Snapshot(START_MS, (BrokerState(1, {"soon": series}),)))
    assert len(alerting.alerts) == ALERTS_PER_RULE_MAX


def test_fingerprints_are_those_of_prometheus():
    # As computed by github.com/prometheus/common/model: FNV-1a with 0xff between names and values.
    assert fingerprint({}) == "cbf29ce484222325"
    assert fingerprint({"a": "b"}) == _fnv(b"a\xffb\xff")
    assert fingerprint({"b": "2", "a": "1"}) == _fnv(b"a\xff1\xffb\xff2\xff")


def _fnv(data: bytes) -> str:
    state = 0xCBF29CE484222325
    for octet in data:
        state = (state ^ octet) * 0x100000001B3 % 2**64
    return f"{state:016x}"
