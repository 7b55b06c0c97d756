"""Groups of a coordinator, against the time of every append."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.observe.lag import tracker as module
from runnel.observe.lag.first_unread import FirstUnread
from runnel.observe.lag.partitions import (
    AFTER_END,
    BEFORE_OBSERVATION,
    BY_RECORD_TIME,
    NO_RECORD,
    OPEN_TRANSACTION,
    REFRESH_MS,
    RETRY_MS,
)
from runnel.observe.lag.timeline import RESOLUTION_MS
from runnel.observe.lag.verdict import NEVER, Verdict
from tests.observe.lag.groups import WALL_MS, World

TOPICS = [("a", 0), ("a", 1), ("b", 0)]
GROUPS = ["g", "h"]

moves = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 2500)),
        st.tuples(st.just("append"), st.sampled_from(TOPICS), st.integers(1, 9)),
        st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.floats(0, 1)),
        st.tuples(st.just("read_commits")),
        st.tuples(st.just("read_ends")),
    ),
    max_size=150,
)


@given(moves)
@settings(max_examples=200)
def test_lag_is_that_of_the_appends_and_never_negative(script):
    world = World()
    seen: dict[tuple[str, str, int], int] = {}
    """Committed offsets when commits were last read."""
    for move in script:
        match move:
            case "pass", passed_ms:
                world.now_ms += passed_ms
            case "append", (topic, partition), count:
                world.append(topic, partition, count)
            case "commit", group, (topic, partition), share:
                log = world.logs.get((topic, partition))
                world.commit(group, topic, partition, int(share * len(log.appended_ms)) if log else 0)
            case ("read_commits",):
                world.read_commits()
                seen = {
                    (group, topic, partition): commit.offset
                    for group, topics in world.commits.items()
                    for topic, partitions in topics.items()
                    for partition, commit in partitions.items()
                }
            case ("read_ends",):
                world.read_ends()
        check(world, seen)


def check(world: World, seen: dict[tuple[str, str, int], int]) -> None:
    for (group, topic, partition), committed in seen.items():
        lag = world.lag(group, topic, partition)
        assert lag.committed == committed
        if lag.lag is None:
            assert lag.reason is not None and lag.lag_ms is None
            continue
        assert lag.lag >= 0 and (lag.lag_ms is None or lag.lag_ms >= 0)
        appended_ms = world.logs[topic, partition].appended_ms
        # The end may have moved on since it was observed.
        assert lag.lag <= len(appended_ms) - committed
        if lag.lag and lag.lag_ms is not None:
            assert lag.lag_ms >= world.now_ms - appended_ms[committed] - RESOLUTION_MS
        assert (lag.lag_ms is None) is (lag.reason == BEFORE_OBSERVATION)


def test_a_stopped_group():
    world = World()
    world.append("a", 0)
    world.commit("g", "a", 0, 1)
    world.sample()
    for _ in range(1200):
        world.now_ms += 1000
        world.append("a", 0, 3)
        world.sample()
    lag = world.lag("g", "a", 0)
    assert (lag.end, lag.lag) == (3601, 3600)
    assert abs(world.lag_ms("g", "a", 0) - 1_199_000) <= RESOLUTION_MS
    report = world.report("g")
    assert (report.verdict, report.forecast_seconds, report.unknown) == (Verdict.STOPPED, NEVER, 0)


def test_a_group_that_catches_up():
    world = World()
    world.append("a", 0, 1000)
    world.commit("g", "a", 0, 0)
    world.sample()
    for second in range(1, 31):
        world.now_ms += 1000
        world.append("a", 0, 10)
        if second % 5 == 0:
            world.commit("g", "a", 0, 30 * second)
        world.sample()
    report = world.report("g")
    assert report.verdict is Verdict.OK
    assert report.lag == 1300 - 900
    assert report.forecast_seconds == pytest.approx(400 / 20, abs=2)


def test_what_is_deleted_is_dropped():
    world = World()
    for group in GROUPS:
        for topic, partition in TOPICS:
            world.append(topic, partition)
            world.commit(group, topic, partition, 0)
    world.sample()
    assert (world.tracker.position_count, len(world.tracker.partitions)) == (6, 3)
    del world.commits["h"]
    del world.commits["g"]["a"][1]
    world.sample()
    assert (world.tracker.position_count, sorted(world.tracker.partitions)) == (2, [("a", 0), ("b", 0)])
    assert list(world.tracker.groups) == ["g"]
    world.commits.clear()
    world.read_commits()
    assert not world.tracker.groups and not world.tracker.partitions and not world.tracker.position_count


def test_offsets_beyond_the_limit_are_counted_as_unknown():
    world = World(positions_max=2)
    for topic, partition in TOPICS:
        world.append(topic, partition)
        world.commit("g", topic, partition, 0)
    for _ in range(3):
        world.sample()
        report = world.report("g")
        assert (len(report.partitions), report.unknown) == (2, 3)
    world.now_ms += 1000
    world.append("a", 0)
    del world.commits["g"]["a"][1]
    world.sample()
    world.sample()
    assert (len(world.report("g").partitions), world.tracker.position_count) == (2, 2)


def test_commits_are_read_in_slices(monkeypatch):
    monkeypatch.setattr(module, "SLICE", 10)
    world = World()
    for partition in range(35):
        world.commit("g", "a", partition, 0)
    for group in range(25):
        world.commit(f"g{group}", "a", 0, 0)
    slices = 0
    for _ in world.tracker.read_commits(list(world.commits.items()), 0):
        slices += 1
        # Commits may arrive, and be deleted, meanwhile.
        world.commit("g", "b", slices, 0)
        world.commits["g"]["a"].pop(slices, None)
    assert slices >= 6
    world.read_commits()
    assert world.tracker.position_count == sum(
        len(partitions) for topics in world.commits.values() for partitions in topics.values()
    )


def test_records_from_before_the_observation_have_their_own_time():
    world = World()
    world.append("a", 0, 10)
    world.now_ms = 60_000
    world.commit("g", "a", 0, 4)
    world.sample()
    assert world.lag("g", "a", 0).reason == BEFORE_OBSERVATION
    world.read_commits()
    [position] = world.tracker.take_wanted(10)
    assert position.first == 4
    # A year ago: the record was appended before the first observation, not more is known for sure.
    world.tracker.found(position, 4, FirstUnread(4, WALL_MS - 31_536_000_000), world.now_ms)
    world.now_ms += 1000
    lag = world.lag("g", "a", 0)
    assert (lag.lag_ms, lag.reason) == (31_536_061_000, BY_RECORD_TIME)
    # In the future: it has been there since the first observation.
    world.tracker.found(position, 4, FirstUnread(4, WALL_MS + 99_000_000), world.now_ms)
    assert world.lag("g", "a", 0).lag_ms == 1000
    # The time of the append.
    world.tracker.found(position, 4, FirstUnread(4, WALL_MS, True), world.now_ms)
    lag = world.lag("g", "a", 0)
    assert (lag.lag_ms, lag.reason) == (61_000, None)
    world.read_commits()
    assert world.tracker.take_wanted(10) == []
    # Until the record after the next commit is found, the one before it tells more than nothing.
    world.commit("g", "a", 0, 6)
    world.read_commits()
    assert world.lag("g", "a", 0).lag_ms == 61_000
    world.commit("g", "a", 0, 2)
    world.read_commits()
    assert world.lag("g", "a", 0).lag_ms is None


def test_only_groups_that_do_not_move_have_records_looked_up():
    world = World()
    world.append("a", 0)
    world.commit("g", "a", 0, 1)
    world.sample()
    for _ in range(3):
        world.now_ms += 1000
        world.append("a", 0, 5)
        world.commit("g", "a", 0, len(world.logs["a", 0].appended_ms) - 4)
        world.sample()
    assert world.tracker.take_wanted(10) == []
    world.now_ms += 1000
    world.sample()
    [position] = world.tracker.take_wanted(10)
    world.tracker.not_found(position, world.now_ms)
    world.sample()
    assert world.tracker.take_wanted(10) == []
    world.now_ms += RETRY_MS
    world.sample()
    assert world.tracker.take_wanted(10) == [position]


def test_only_markers_are_unread():
    world = World()
    world.append("a", 0, 5)
    world.commit("g", "a", 0, 5)
    world.sample()
    world.now_ms += 1000
    world.append("a", 0)
    world.sample()
    world.now_ms += 1000
    world.sample()
    [position] = world.tracker.take_wanted(10)
    world.tracker.found(position, 5, FirstUnread(6, None), world.now_ms)
    world.now_ms += 100_000
    world.sample()
    lag = world.lag("g", "a", 0)
    assert (lag.lag, lag.lag_ms, lag.reason) == (1, 0, NO_RECORD)
    assert world.report("g").verdict is Verdict.OK
    # The next record is one that the group can read.
    world.now_ms += 1000
    world.append("a", 0)
    world.now_ms += 1000
    world.sample()
    world.now_ms += 5000
    assert world.lag_ms("g", "a", 0) >= 5000
    world.sample()
    assert world.tracker.take_wanted(10) == [position] and position.first == 6


def test_an_open_transaction():
    world = World()
    world.append("a", 0, 10)
    for group, offset in (("committed", 10), ("uncommitted", 10)):
        world.commit(group, "a", 0, offset)
    world.logs["a", 0].stable = 10
    world.sample()
    world.now_ms += 1000
    world.append("a", 0, 10)
    world.commit("uncommitted", "a", 0, 15)
    world.sample()
    world.now_ms += 60_000
    world.sample()
    waits, reads = world.lag("committed", "a", 0), world.lag("uncommitted", "a", 0)
    assert (waits.lag, waits.lag_ms, waits.reason) == (10, 0, OPEN_TRANSACTION)
    assert (reads.lag, reads.reason) == (5, None)
    assert abs(world.lag_ms("uncommitted", "a", 0) - 60_000) <= RESOLUTION_MS
    # It is known from then on that the group does not wait for transactions.
    world.commit("uncommitted", "a", 0, 10)
    world.sample()
    assert world.lag_ms("uncommitted", "a", 0) >= 59_000
    world.logs["a", 0].stable = None
    world.sample()
    assert abs(world.lag_ms("committed", "a", 0) - 60_000) <= RESOLUTION_MS


def test_found_records_of_a_compacted_partition_are_looked_up_again():
    world = World()
    world.append("a", 0, 5)
    world.commit("g", "a", 0, 2)
    world.sample()
    world.tracker.partitions["a", 0].is_compacted = True
    world.read_commits()
    [position] = world.tracker.take_wanted(10)
    world.tracker.found(position, 2, FirstUnread(3, WALL_MS), world.now_ms)
    world.read_commits()
    assert world.tracker.take_wanted(10) == []
    world.now_ms += REFRESH_MS + 1
    world.read_commits()
    [position] = world.tracker.take_wanted(10)
    assert position.first == 3
    # What was looked up for an earlier commit is ignored.
    world.commit("g", "a", 0, 4)
    world.read_commits()
    world.tracker.found(position, 3, FirstUnread(3, WALL_MS), world.now_ms)
    assert position.first == 4


def test_a_commit_after_the_end():
    world = World()
    world.append("a", 0, 5)
    world.commit("g", "a", 0, 9)
    world.sample()
    lag = world.lag("g", "a", 0)
    assert (lag.lag, lag.lag_ms, lag.reason) == (0, 0, AFTER_END)


def test_memory_is_shared_by_many_partitions(monkeypatch):
    monkeypatch.setattr(module, "POINTS_MAX", 20_000)
    world = World()
    for partition in range(200):
        world.append("a", partition)
        world.commit("g", "a", partition, 0)
    for _ in range(400):
        world.now_ms += 1000
        for partition in range(200):
            world.append("a", partition)
        world.sample()
    points = sum(len(partition.timeline) for partition in world.tracker.partitions.values())
    assert points <= 20_000 + 200 * 66
