"""The lag of the last day: samples against a plain list of them, and the pages that look back."""

import time
from collections.abc import Iterator
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.client.groups import Groups
from runnel.gateway import lag_history as module
from runnel.gateway.lag import LagSummary
from runnel.gateway.lag_history import LagHistory
from runnel.gateway.options import GatewayOptions
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving

NAMES = ("a", "b", "c")
SAMPLES = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(LagSummary, st.integers(0, 2**52), st.none() | st.floats(0, 1e6, width=32)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(SAMPLES, st.integers(1, 12))
def test_samples_are_those_of_a_plain_list(samples: list[dict[str, LagSummary]], kept: int) -> None:
    history, before = LagHistory(), module.KEPT
    module.KEPT = kept
    try:
        for number, sample in enumerate(samples):
            history.add(10 * number, sample)
    finally:
        module.KEPT = before
    plain = list(enumerate(samples))[-kept:]
    assert len(history) == len(plain)
    assert history.since_ms == (10 * plain[0][0] if plain else None)
    for name in NAMES:
        expected = [(10 * number, each[name]) for number, each in plain if name in each]
        found = history.of(name)
        assert [(each.at_ms, each.lag) for each in found] == [(at, each.lag) for at, each in expected]
        for (_, summary), each in zip(expected, found, strict=True):
            assert (summary.seconds is None) == (each.seconds is None)
            assert summary.seconds is None or isclose(summary.seconds, each.seconds or 0.0, rel_tol=1e-6)
    for number, sample in plain:
        then = history.at(10 * number + 9)
        assert {name: each.lag for name, each in then.items()} == {
            name: each.lag for name, each in sample.items()
        }
    assert history.at(-1) == {}


def test_the_number_of_groups_is_limited(monkeypatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 3)
    history = LagHistory()
    history.add(0, {f"g{number}": LagSummary(1) for number in range(9)})
    assert len(history.at(0)) == 3


@pytest.fixture
def reader(monkeypatch) -> Iterator[tuple[Broker, Visitor]]:
    """A broker with a group, and a console that takes samples all the time."""
    monkeypatch.setattr(module, "INTERVAL_S", 0.1)
    with Broker(admin=True) as broker, broker.client() as client:
        client.create_topic("orders")
        for _ in range(20):
            client.send("orders", b"x", partition=0)
        commit(broker, 5)
        with serving(GatewayOptions(broker.bootstrap_servers)) as visitor:
            yield broker, visitor


def commit(broker: Broker, offset: int) -> None:
    with broker.client() as client:
        client.run(lambda cluster: Groups(cluster).commit("billing", {TopicPartition("orders", 0): offset}))


def until(visitor: Visitor, path: str, text: str) -> str:
    deadline = time.monotonic() + 30
    while text not in (found := visitor.content(path).text):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_lag_as_of_a_time(reader: tuple[Broker, Visitor]) -> None:
    broker, visitor = reader
    until(visitor, f"/console/group?id=billing&asof=%40{2**41}", '<div class="value">15</div>')
    then_ms = time.time_ns() // 1_000_000
    commit(broker, 18)
    until(visitor, f"/console/group?id=billing&asof=%40{2**41}", '<div class="value">2</div>')
    as_of = f"asof=%40{then_ms}"
    assert '<div class="value">15</div>' in visitor.content(f"/console/group?id=billing&{as_of}").text
    assert "Back to now" in visitor.get(f"/console/groups?{as_of}").text
    listed = visitor.content(f"/console/groups?{as_of}").text
    assert '<td class="number" data-label="Lag">15</td>' in listed
    assert f"/console/group?id=billing&amp;asof=%40{then_ms}" in listed
    drawn = until(visitor, "/console/group/history?id=billing", "Lag in records")
    assert "<svg" in drawn and "style=" not in drawn
    early = visitor.content("/console/group?id=billing&asof=2020-01-01").text
    assert "Not known" in early and "samples of the lag since" in early
    assert visitor.content("/console/group/history?id=nothing").status == 404


def test_without_admin_listeners_nothing_is_known(visitor: Visitor) -> None:
    page = visitor.content("/console/group?id=billing&asof=1m").text
    assert "admin listeners cannot be read" in page
    assert visitor.content("/console/groups?asof=1m&sort=lag").status == 200
