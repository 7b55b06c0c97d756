"""Append times against a list of every append."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.lag import timeline as module
from runnel.observe.lag.timeline import COARSE_MS, RESOLUTION_MS, Timeline


class EveryAppend:
    """The time of every append, and of every observation."""

    def __init__(self) -> None:
        self.appends: list[int] = []
        """By offset."""
        self.observations: list[int] = []
        self._observed_before: list[int] = []
        """The number of observations before each append."""

    def append(self, at_ms: int, count: int) -> None:
        self.appends.extend([at_ms] * count)
        self._observed_before.extend([len(self.observations)] * count)

    def observation_distance(self, offset: int) -> int:
        """The distance of the two observations between which a record was appended."""
        index = self._observed_before[offset]
        return self.observations[index] - self.observations[index - 1]


steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5), st.booleans()), min_size=1, max_size=120)
"""Time that passes, records that are appended, and whether the end is observed then."""


def play(
    moves: list[tuple[int, int, bool]], recent_max: int, coarse_max: int
) -> tuple[Timeline, EveryAppend]:
    timeline, every, now_ms = Timeline(), EveryAppend(), 1000
    for passed_ms, count, is_observed in moves:
        now_ms += passed_ms
        every.append(now_ms, count)
        if is_observed:
            every.observations.append(now_ms)
            timeline.observe(len(every.appends), now_ms, recent_max, coarse_max)
    return timeline, every


@given(steps)
def test_append_times_are_those_of_the_appends(moves):
    timeline, every = play(moves, module.RECENT_MAX, module.COARSE_MAX)
    first = timeline.first_end
    for offset, appended_ms in enumerate(every.appends):
        stated_ms = timeline.appended_ms(offset)
        interval = timeline.interval(offset)
        if first is None or offset < first:
            assert stated_ms is None
            assert interval is None or interval[0] is None
        elif interval is not None:
            assert stated_ms is not None and interval[0] is not None
            assert interval[0] <= appended_ms <= interval[1]
            # Never too late by more than the resolution, nor too early by more than observations are apart.
            assert stated_ms - appended_ms <= RESOLUTION_MS
            assert appended_ms - stated_ms <= max(every.observation_distance(offset), RESOLUTION_MS)


@given(steps, st.integers(1, 5), st.integers(1, 6))
def test_old_points_are_thinned_and_dropped(moves, recent_max, coarse_max):
    timeline, every = play(moves * 4, recent_max, coarse_max)
    assert len(timeline) <= recent_max + coarse_max + module._EXCESS_MAX + 2
    first = timeline.first_end
    for offset, appended_ms in enumerate(every.appends):
        stated_ms = timeline.appended_ms(offset)
        if stated_ms is None:
            assert first is None or offset < first or timeline.interval(offset) is None
        else:
            assert stated_ms - appended_ms <= RESOLUTION_MS
            assert appended_ms - stated_ms <= max(every.observation_distance(offset), COARSE_MS)


def test_a_day_of_constant_appends_is_bounded():
    timeline, random = Timeline(), Random(1)
    end = 0
    appended: dict[int, int] = {}
    for second in range(100_000):
        appended[end] = second * 1000
        end += random.randrange(1, 50)
        timeline.observe(end, second * 1000)
    assert len(timeline) <= module.RECENT_MAX + module.COARSE_MAX + 70
    now_ms = 99_999_000
    known = [offset for offset in appended if timeline.appended_ms(offset) is not None]
    ages = [now_ms - appended[offset] for offset in known]
    assert max(ages) >= 0.95 * module.AGE_MAX_MS
    for offset, age_ms in zip(known, ages, strict=True):
        error_ms = appended[offset] - (timeline.appended_ms(offset) or 0)
        recent = module.RECENT_MAX * 1000
        assert -RESOLUTION_MS <= error_ms <= (2 * RESOLUTION_MS if age_ms < recent else COARSE_MS + 1000)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(-4, 5), st.booleans()), min_size=1, max_size=80))
def test_records_that_replace_lost_ones_are_not_taken_for_older(moves):
    timeline, now_ms, observed = Timeline(), 1000, 0
    appends: list[int] = []
    for passed_ms, count, is_observed in moves:
        now_ms += passed_ms
        if count < 0:
            del appends[max(len(appends) + count, 0) :]
            # A leader that lost records is observed before it appends others at their offsets.
            is_observed = True
        appends.extend([now_ms] * max(count, 0))
        if is_observed:
            timeline.observe(len(appends), now_ms)
            observed = len(appends)
    for offset, appended_ms in enumerate(appends[:observed]):
        stated_ms = timeline.appended_ms(offset)
        if stated_ms is not None:
            assert stated_ms - appended_ms <= RESOLUTION_MS


def test_an_idle_time_is_not_part_of_the_interval():
    timeline = Timeline()
    timeline.observe(40, 0)
    for second in range(1, 3600):
        timeline.observe(40, second * 1000)
    timeline.observe(75, 3_600_000)
    assert timeline.interval(40) == (3_599_000, 3_600_000)
    assert timeline.appended_ms(40) == 3_599_000
    assert timeline.appended_ms(74) == 3_599_971
    assert timeline.appended_ms(75) is None
    assert len(timeline) == 3
