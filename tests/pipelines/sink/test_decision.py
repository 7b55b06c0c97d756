"""The decision about a batch, with a death before and after every step, and with two drivers at once."""

import asyncio
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.pipelines.sink.decision import (
    InDoubt,
    NotDecided,
    Note,
    Verdict,
    Written,
    abort_batch,
    commit_batch,
    judge,
)
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE
from tests.pipelines.sink.model import Away, Fenced, Killed, Life, World, expected, rows_of, run_batch


def lives_until_done(world: World, lives: list[Life], batches: int, task_counts: list[int]) -> None:
    """Restart from the first batch that Spark has not noted as done, until all are."""
    done = 0
    endless = iter(lives)
    for attempt in range(100):
        life = next(endless, Life(world))
        try:
            while done < batches:
                tasks = task_counts[(attempt + done) % len(task_counts)]
                asyncio.run(run_batch(life, done, tasks, loser=attempt % 2 == 0))
                done += 1
            return
        except (Killed, NotDecided):
            pass
    raise AssertionError("it never ends")


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_death_at_any_step_neither_loses_nor_doubles_a_row(dies_after):
    step = 1
    while True:
        world = World()
        life = Life(world, step, dies_after)
        lives_until_done(world, [life], 3, [3, 2])
        assert world.visible() == expected(3), step
        # Whatever dead tasks have left open, the next batch undoes.
        asyncio.run(run_batch(Life(world), 3, 1))
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
def test_many_deaths_and_other_numbers_of_tasks_change_nothing(deaths, task_counts):
    world = World()
    lives_until_done(world, [Life(world, *death) for death in deaths], 4, task_counts)
    assert world.visible() == expected(4)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 1), max_size=120), st.integers(1, 3), st.integers(1, 3))
def test_two_drivers_at_once_write_a_batch_once(order, first_tasks, second_tasks):
    """An old driver that is thawed in the middle of its successor's work, in every order of their steps."""

    async def race() -> World:
        world = World()
        turns = iter(order)
        gates = [asyncio.Event(), asyncio.Event()]
        is_over = [False, False]

        def let_next() -> None:
            chosen = next(turns, 0)
            gates[1 - chosen if is_over[chosen] else chosen].set()

        async def drive(number: int, tasks: int) -> None:
            async def turn() -> None:
                let_next()
                await gates[number].wait()
                gates[number].clear()

            try:
                for batch in range(2):
                    await run_batch(Life(world, turn=turn), batch, tasks)
            except (Fenced, NotDecided, InDoubt):
                pass
            finally:
                is_over[number] = True
                let_next()

        await asyncio.gather(drive(0, first_tasks), drive(1, second_tasks))
        return world

    world = asyncio.run(race())
    shown = world.visible()
    done = 0 if world.note is None else world.note.batch + 1
    finished = Counter(row for batch in range(done) for row in rows_of(batch))
    last = Counter(rows_of(done - 1)) if done else Counter()
    # What was decided is whole or not yet carried out; nothing is there twice, and nothing else is there.
    assert shown <= finished and finished - last <= shown
    if world.note is not None:
        states = {world.states[part] for part in world.note.parts}
        assert "aborted" not in states
    asyncio.run(run_batch(Life(world), max(done - 1, 0), 2))
    assert world.visible() == expected(max(done, 1))


def test_an_old_driver_that_tidies_up_late_leaves_the_next_batch_alone():
    async def story() -> None:
        thaw, has_decided = asyncio.Event(), asyncio.Event()

        def stopping(life: Life, step: int, reached: asyncio.Event | None, until: asyncio.Event):
            async def turn() -> None:
                if life.step + 1 == step:
                    if reached is not None:
                        reached.set()
                    await until.wait()

            return turn

        old, new, old_is_through = Life(world), Life(world), asyncio.Event()
        # Right behind the decision: its parts are still to be ended.
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
        assert world.note is not None and world.note.batch == 1
        thaw.set()
        await old_task
        old_is_through.set()
        await successor

    world = World()
    asyncio.run(story())
    assert world.visible() == expected(2)


def test_a_decision_that_timed_out_as_a_whole_is_revoked_and_the_batch_written_again():
    world = World()
    deciding = Life(world)
    asyncio.run(run_batch(deciding, 0, 2))
    parts = tuple(world.write_part(rows_of(1)[task::2]) for task in range(2))
    world.note = Note(1, 6, parts)
    world.time_out()
    with pytest.raises(NotDecided, match="batch 1 was decided, but timed out"):
        asyncio.run(run_batch(Life(world), 1, 3))
    asyncio.run(run_batch(Life(world), 1, 3))
    assert world.visible() == expected(2)


def half_lost() -> World:
    world = World()
    parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
    world.note = Note(0, 6, parts)
    world.states[parts[0]] = "committed"
    world.time_out()
    return world


def test_a_decision_of_which_a_part_timed_out_is_left_to_an_operator():
    with pytest.raises(InDoubt, match=r"1 of 2 parts of batch 0 timed out.*inDoubt=write"):
        asyncio.run(run_batch(Life(half_lost()), 0, 2))


def test_a_person_may_let_the_rest_of_a_half_lost_batch_go():
    world = half_lost()
    asyncio.run(run_batch(Life(world), 0, 2, SKIP))
    assert world.visible() == Counter(rows_of(0)[0::2])


def test_a_person_may_have_a_half_lost_batch_written_again():
    world = half_lost()
    with pytest.raises(NotDecided):
        asyncio.run(run_batch(Life(world), 0, 2, WRITE))
    asyncio.run(run_batch(Life(world), 0, 2, WRITE))
    assert world.visible() == Counter(rows_of(0)) + Counter(rows_of(0)[0::2])


def test_a_decision_that_times_out_at_once_is_revoked_by_who_wrote_it():
    """The note is a transaction, after which its writer goes by another epoch."""
    world = World()
    life = Life(world)

    async def turn() -> None:
        if world.decisions:
            world.time_out()

    life.turn = turn
    with pytest.raises(NotDecided, match="batch 0 was decided, but timed out"):
        asyncio.run(run_batch(life, 0, 2))
    assert world.note is not None and world.note.is_revoked
    asyncio.run(run_batch(Life(world), 0, 3))
    assert world.visible() == expected(1)


def forgotten() -> World:
    """A decision whose parts have ended so long ago that the broker does not know their ids any more."""
    world = World()
    parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
    world.note = Note(0, 6, parts)
    for part in parts:
        world.states[part] = "committed"
    world.holders.clear()
    return world


def test_parts_with_an_unknown_outcome_are_reported_with_both_remedies():
    reported = (
        r"2 of 2 parts of batch 0 ended, but their outcome is no longer known.*inDoubt=write.*inDoubt=skip"
    )
    with pytest.raises(InDoubt, match=reported):
        asyncio.run(run_batch(Life(forgotten()), 0, 2))


def test_an_operator_may_accept_parts_with_an_unknown_outcome():
    world = forgotten()
    asyncio.run(run_batch(Life(world), 0, 2, SKIP))
    asyncio.run(run_batch(Life(world), 1, 2))
    assert world.visible() == expected(2)


def test_an_operator_may_have_a_batch_with_an_unknown_outcome_written_again():
    world = forgotten()
    with pytest.raises(NotDecided):
        asyncio.run(run_batch(Life(world), 0, 2, WRITE))
    asyncio.run(run_batch(Life(world), 0, 2))
    assert world.visible() == Counter(rows_of(0) * 2)


def test_a_batch_that_is_visible_does_not_fail_for_what_cannot_be_tidied_up():
    class Untidy(Life):
        async def abort(self, part):
            raise Away

    world = World()
    asyncio.run(run_batch(Untidy(world), 0, 2, loser=True))
    assert world.visible() == expected(1)
    asyncio.run(run_batch(Life(world), 1, 2))
    assert world.visible() == expected(2) and "open" not in world.states.values()


def test_a_transaction_that_timed_out_before_the_decision_fails_the_batch_and_leaves_nothing():
    async def story() -> None:
        parts = tuple(world.write_part(rows_of(0)[task::2]) for task in range(2))
        world.states[parts[1]] = "aborted"
        written = Written(0, 6, parts, has_skipped=False, may_begin=True)
        with pytest.raises(NotDecided, match="task-2 of batch 0 are not open"):
            await commit_batch(Life(world), written, FAIL)
        await abort_batch(Life(world), 0, parts)

    world = World()
    asyncio.run(story())
    assert not world.visible() and world.note is None
    assert set(world.states.values()) == {"aborted"}


def test_a_first_batch_that_is_not_the_first_is_in_doubt():
    with pytest.raises(InDoubt, match="no note of any batch before"):
        judge(None, 7, may_begin=False, in_doubt=FAIL)
    assert judge(None, 7, may_begin=False, in_doubt=WRITE) is Verdict.WRITE
    assert judge(None, 7, may_begin=False, in_doubt=SKIP) is Verdict.SKIP


def test_a_batch_behind_the_note_is_in_doubt():
    with pytest.raises(InDoubt, match="batch 9 was written before"):
        judge(Note(9, 0, ()), 7, may_begin=False, in_doubt=FAIL)


def test_a_replay_with_other_rows_is_reported():
    world = World()
    asyncio.run(run_batch(Life(world), 0, 2))
    written = Written(0, 7, (), has_skipped=True, may_begin=True)
    with pytest.raises(InDoubt, match="with 6 rows, and has 7 now"):
        asyncio.run(commit_batch(Life(world), written, FAIL))
    asyncio.run(commit_batch(Life(world), written, SKIP))


def test_skipping_the_first_batch_leaves_a_note_for_the_next():
    world = World()
    asyncio.run(run_batch(Life(world), 5, 2, SKIP))
    asyncio.run(run_batch(Life(world), 6, 2))
    assert world.visible() == Counter(rows_of(6))
