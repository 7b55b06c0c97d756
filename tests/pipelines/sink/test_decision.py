"""The commit protocol with a crash before and after every step, and with two concurrent drivers."""

import asyncio
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.pipelines.sink.decision import (
    BatchAction,
    CommitMarker,
    InDoubt,
    NotDecided,
    WrittenBatch,
    abort_batch,
    batch_action,
    commit_batch,
)
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE
from tests.pipelines.sink.model import (
    Away,
    Fenced,
    Killed,
    ModelBroker,
    Process,
    expected,
    rows_of,
    run_batch,
)


def lives_until_done(world: ModelBroker, lives: list[Process], batches: int, task_counts: list[int]) -> None:
    """Restart from the first batch that is not in Spark's commit log, until all are."""
    done = 0
    endless = iter(lives)
    for attempt in range(100):
        life = next(endless, Process(world))
        try:
            while done < batches:
                tasks = task_counts[(attempt + done) % len(task_counts)]
                asyncio.run(run_batch(life, done, tasks, loser=attempt % 2 == 0))
                done += 1
            return
        except (Killed, NotDecided):
            pass
    raise AssertionError("it never ends")


@pytest.mark.parametrize("fails_after", [False, True])
def test_a_crash_at_any_step_neither_loses_nor_duplicates_rows(fails_after):
    step = 1
    while True:
        world = ModelBroker()
        life = Process(world, step, fails_after)
        lives_until_done(world, [life], 3, [3, 2])
        assert world.visible() == expected(3), step
        # The next batch aborts the open transactions of dead tasks.
        asyncio.run(run_batch(Process(world), 3, 1))
        assert "open" not in world.states.values()
        if life.step < step:
            assert step > 40
            return
        step += 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_repeated_crashes_with_changing_task_counts(deaths, task_counts):
    world = ModelBroker()
    lives_until_done(world, [Process(world, *death) for death in deaths], 4, task_counts)
    assert world.visible() == expected(4)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 1), max_size=120), st.integers(1, 3), st.integers(1, 3))
def test_two_drivers_at_once_write_a_batch_once(order, first_tasks, second_tasks):
    """A zombie driver resumes while its successor is active, in every interleaving of their steps."""

    async def race() -> ModelBroker:
        world = ModelBroker()
        partitioner = iter(order)
        gates = [asyncio.Event(), asyncio.Event()]
        is_over = [False, False]

        def let_next() -> None:
            chosen = next(partitioner, 0)
            gates[1 - chosen if is_over[chosen] else chosen].set()

        async def drive(number: int, tasks: int) -> None:
            async def turn() -> None:
                let_next()
                await gates[number].wait()
                gates[number].clear()

            try:
                for batch in range(2):
                    await run_batch(Process(world, turn=turn), batch, tasks)
            except (Fenced, NotDecided, InDoubt):
                pass
            finally:
                is_over[number] = True
                let_next()

        await asyncio.gather(drive(0, first_tasks), drive(1, second_tasks))
        return world

    world = asyncio.run(race())
    shown = world.visible()
    done = 0 if world.marker is None else world.marker.batch + 1
    finished = Counter(row for batch in range(done) for row in rows_of(batch))
    last = Counter(rows_of(done - 1)) if done else Counter()
    # Committed batches are complete or still pending; there are no duplicates and no other rows.
    assert shown <= finished and finished - last <= shown
    if world.marker is not None:
        states = {world.states[part] for part in world.marker.parts}
        assert "aborted" not in states
    asyncio.run(run_batch(Process(world), max(done - 1, 0), 2))
    assert world.visible() == expected(max(done, 1))


def test_late_cleanup_by_a_zombie_driver_does_not_affect_the_next_batch():
    async def scenario() -> None:
        thaw, has_decided = asyncio.Event(), asyncio.Event()

        def stopping(life: Process, step: int, reached: asyncio.Event | None, until: asyncio.Event):
            async def turn() -> None:
                if life.step + 1 == step:
                    if reached is not None:
                        reached.set()
                    await until.wait()

            return turn

        old, new, old_is_through = Process(world), Process(world), asyncio.Event()
        # Right after the commit point: the parts are still open.
        old.turn = stopping(old, 7, None, thaw)
        new.turn = stopping(new, 11, has_decided, old_is_through)
        old_task = asyncio.create_task(run_batch(old, 0, 1))
        while old.step < 6:
            await asyncio.sleep(0)
        world.write_part(["of a lost task"])
        successor = asyncio.gather(run_batch(new, 0, 1))
        await successor
        successor = asyncio.gather(run_batch(new, 1, 1))
        await has_decided.wait()
        assert world.marker is not None and world.marker.batch == 1
        thaw.set()
        await old_task
        old_is_through.set()
        await successor

    world = ModelBroker()
    asyncio.run(scenario())
    assert world.visible() == expected(2)


def test_a_marker_whose_parts_all_timed_out_is_revoked_and_the_batch_written_again():
    world = ModelBroker()
    deciding = Process(world)
    asyncio.run(run_batch(deciding, 0, 2))
    parts = tuple(world.write_part(rows_of(1)[task::2]) for task in range(2))
    world.marker = CommitMarker(1, 6, parts)
    world.time_out()
    with pytest.raises(NotDecided, match="batch 1 was decided, but timed out"):
        asyncio.run(run_batch(Process(world), 1, 3))
    asyncio.run(run_batch(Process(world), 1, 3))
    assert world.visible() == expected(2)


def half_lost() -> ModelBroker:
    world = ModelBroker()
    parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
    world.marker = CommitMarker(0, 6, parts)
    world.states[parts[0]] = "committed"
    world.time_out()
    return world


def test_a_marker_with_one_part_timed_out_is_left_to_an_operator():
    with pytest.raises(InDoubt, match=r"1 of 2 parts of batch 0 timed out.*inDoubt=write"):
        asyncio.run(run_batch(Process(half_lost()), 0, 2))


def test_an_operator_may_skip_the_lost_parts_of_a_batch():
    world = half_lost()
    asyncio.run(run_batch(Process(world), 0, 2, SKIP))
    assert world.visible() == Counter(rows_of(0)[0::2])


def test_an_operator_may_rewrite_a_partially_lost_batch():
    world = half_lost()
    with pytest.raises(NotDecided):
        asyncio.run(run_batch(Process(world), 0, 2, WRITE))
    asyncio.run(run_batch(Process(world), 0, 2, WRITE))
    assert world.visible() == Counter(rows_of(0)) + Counter(rows_of(0)[0::2])


def test_a_marker_whose_parts_time_out_at_once_is_revoked_by_its_writer():
    """Writing the commit marker is a transaction, which bumps the epoch of its writer."""
    world = ModelBroker()
    life = Process(world)

    async def turn() -> None:
        if world.decisions:
            world.time_out()

    life.turn = turn
    with pytest.raises(NotDecided, match="batch 0 was decided, but timed out"):
        asyncio.run(run_batch(life, 0, 2))
    assert world.marker is not None and world.marker.is_revoked
    asyncio.run(run_batch(Process(world), 0, 3))
    assert world.visible() == expected(1)


def forgotten() -> ModelBroker:
    """A commit marker whose parts ended so long ago that the broker has expired their ids."""
    world = ModelBroker()
    parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
    world.marker = CommitMarker(0, 6, parts)
    for part in parts:
        world.states[part] = "committed"
    world.holders.clear()
    return world


def test_parts_with_an_unknown_outcome_are_reported_with_both_remedies():
    reported = (
        r"2 of 2 parts of batch 0 ended, but their outcome is no longer known.*inDoubt=write.*inDoubt=skip"
    )
    with pytest.raises(InDoubt, match=reported):
        asyncio.run(run_batch(Process(forgotten()), 0, 2))


def test_an_operator_may_accept_parts_with_an_unknown_outcome():
    world = forgotten()
    asyncio.run(run_batch(Process(world), 0, 2, SKIP))
    asyncio.run(run_batch(Process(world), 1, 2))
    assert world.visible() == expected(2)


def test_an_operator_may_rewrite_a_batch_with_an_unknown_outcome():
    world = forgotten()
    with pytest.raises(NotDecided):
        asyncio.run(run_batch(Process(world), 0, 2, WRITE))
    asyncio.run(run_batch(Process(world), 0, 2))
    assert world.visible() == Counter(rows_of(0) * 2)


def test_a_failed_cleanup_does_not_fail_a_visible_batch():
    class Untidy(Process):
        async def abort(self, part):
            raise Away

    world = ModelBroker()
    asyncio.run(run_batch(Untidy(world), 0, 2, loser=True))
    assert world.visible() == expected(1)
    asyncio.run(run_batch(Process(world), 1, 2))
    assert world.visible() == expected(2) and "open" not in world.states.values()


def test_a_timeout_before_the_commit_point_fails_the_batch_and_leaves_nothing_open():
    async def scenario() -> None:
        parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
        world.states[parts[1]] = "aborted"
        written = WrittenBatch(0, 6, parts, has_skipped=False, may_be_first=True)
        with pytest.raises(NotDecided, match="task-2 of batch 0 are no longer open"):
            await commit_batch(Process(world), written, FAIL)
        await abort_batch(Process(world), 0, parts)

    world = ModelBroker()
    asyncio.run(scenario())
    assert not world.visible() and world.marker is None
    assert set(world.states.values()) == {"aborted"}


def test_a_later_batch_without_a_commit_marker_is_in_doubt():
    with pytest.raises(InDoubt, match="no commit marker for an earlier one"):
        batch_action(None, 7, may_be_first=False, in_doubt=FAIL)
    assert batch_action(None, 7, may_be_first=False, in_doubt=WRITE) is BatchAction.WRITE
    assert batch_action(None, 7, may_be_first=False, in_doubt=SKIP) is BatchAction.SKIP


def test_a_batch_before_the_commit_marker_is_in_doubt():
    with pytest.raises(InDoubt, match="batch 9 is already committed"):
        batch_action(CommitMarker(9, 0, ()), 7, may_be_first=False, in_doubt=FAIL)


def test_a_replay_with_other_rows_is_reported():
    world = ModelBroker()
    asyncio.run(run_batch(Process(world), 0, 2))
    written = WrittenBatch(0, 7, (), has_skipped=True, may_be_first=True)
    with pytest.raises(InDoubt, match="with 6 rows, and has 7 now"):
        asyncio.run(commit_batch(Process(world), written, FAIL))
    asyncio.run(commit_batch(Process(world), written, SKIP))


def test_skipping_the_first_batch_writes_a_commit_marker():
    world = ModelBroker()
    asyncio.run(run_batch(Process(world), 5, 2, SKIP))
    asyncio.run(run_batch(Process(world), 6, 2))
    assert world.visible() == Counter(rows_of(6))
