"""Verdicts and forecasts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.lag.verdict import NEVER, Position, Verdict, forecast_of, latest, verdict_of, worst
from runnel.observe.lag.window import COMMITS_MAX, Commit, Window


def commits(*offsets_and_ends: tuple[int, int], every_ms: int = 5000) -> list[Commit]:
    return [Commit(number * every_ms, *values) for number, values in enumerate(offsets_and_ends)]


def position(
    history: list[Commit], end: int, *, after_ms: int = 1000, waiting_ms: int | None = 60_000
) -> Position:
    """Some time after the last commit."""
    last = history[-1]
    return Position(last.at_ms + after_ms, last.offset, end, waiting_ms, after_ms)


FALLING = commits((0, 100), (30, 110), (70, 120), (100, 130), (125, 140))
GROWING = commits(*((10 * number, 100 + 20 * number) for number in range(8)))
STILL = commits(*((50, 100 + number) for number in range(8)))
BACK = commits((50, 100), (60, 100), (20, 100), (30, 100))
AT_END_ONCE = commits((100, 100), (101, 140), (102, 180), (103, 220), (104, 260), (105, 300))


@pytest.mark.parametrize(
    "history, end, after_ms, waiting_ms, expected",
    [
        (FALLING, 150, 1000, 60_000, Verdict.OK),
        (FALLING, 150, 40_000, 60_000, Verdict.STOPPED),
        (FALLING, 125, 40_000, 0, Verdict.OK),
        (GROWING, 300, 1000, 60_000, Verdict.LAGGING),
        (GROWING, 300, 1000, 8000, Verdict.OK),
        (GROWING[:4], 300, 1000, 60_000, Verdict.OK),
        (STILL, 200, 1000, 60_000, Verdict.STALLED),
        (STILL, 200, 1000, 0, Verdict.OK),
        (STILL[:3], 200, 1000, 60_000, Verdict.OK),
        (BACK, 100, 1000, 60_000, Verdict.REWOUND),
        (BACK, 100, 40_000, 60_000, Verdict.STOPPED),
        (AT_END_ONCE, 400, 1000, 60_000, Verdict.OK),
        # A group that was idle for an hour: a record has just arrived, and then was not read for a minute.
        (AT_END_ONCE[:1], 101, 3_600_000, 5000, Verdict.OK),
        (AT_END_ONCE[:1], 101, 3_660_000, 60_000, Verdict.STOPPED),
        # Not known how long: as long as the group is silent.
        (FALLING, 150, 40_000, None, Verdict.STOPPED),
    ],
)
def test_verdicts(history, end, after_ms, waiting_ms, expected):
    now = position(history, end, after_ms=after_ms, waiting_ms=waiting_ms)
    assert verdict_of(history, now) is expected


def test_a_group_that_commits_rarely_has_not_stopped_before_it_usually_commits():
    hourly = commits((0, 100), (90, 200), (180, 300), every_ms=3_600_000)
    now = position(hourly, 400, after_ms=3_000_000, waiting_ms=2_900_000)
    assert verdict_of(hourly, now) is Verdict.OK
    later = position(hourly, 400, after_ms=12_000_000, waiting_ms=11_900_000)
    assert verdict_of(hourly, later) is Verdict.STOPPED


def test_forecasts():
    # 100 records a second are consumed, 60 produced: 4,000 unread are gone in 100 seconds.
    history = commits((0, 5600), (1000, 6200), (2000, 6800), every_ms=10_000)
    now = Position(20_000, 2000, 6800, 60_000, 0)
    assert forecast_of(history, now, Verdict.OK) == pytest.approx(4800 / 40)
    assert forecast_of(history, now, Verdict.STOPPED) == NEVER
    assert forecast_of(history[:1], now, Verdict.OK) is None
    assert forecast_of(GROWING, position(GROWING, 300), Verdict.LAGGING) == NEVER
    assert forecast_of(history, Position(20_000, 2000, 2000, 0, 0), Verdict.OK) == 0
    # Only what was consumed since the group was rewound.
    rewound = [*history, *commits((0, 6800), (500, 6800), every_ms=10_000)]
    rewound = [Commit(number * 10_000, each.offset, each.end) for number, each in enumerate(rewound)]
    now = Position(40_000, 500, 6800, 60_000, 0)
    assert forecast_of(rewound, now, Verdict.REWOUND) == pytest.approx(6300 / 50)


def test_a_group_is_as_bad_as_its_worst_partition():
    assert worst([Verdict.OK, Verdict.STALLED, Verdict.LAGGING]) is Verdict.STALLED
    assert worst([]) is Verdict.UNKNOWN
    assert latest([0.0, 12.0, 4.0]) == 12.0
    assert latest([0.0, None]) is None
    assert latest([None, NEVER, 3.0]) == NEVER
    assert latest([]) is None


@given(st.lists(st.tuples(*[st.integers(0, 2**62)] * 3), max_size=40))
def test_a_window_is_the_last_commits(values):
    window = Window()
    for each in values:
        window.add(Commit(*each))
        assert len(window) <= COMMITS_MAX
    assert window.commits() == [Commit(*each) for each in values[-COMMITS_MAX:]]
