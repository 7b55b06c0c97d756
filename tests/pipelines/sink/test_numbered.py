"""A program that numbers its writes, and goes on after one that failed: nothing decided is lost by that."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.pipelines.sink.decision import InDoubt, NotDecided, Note
from runnel.pipelines.sink.names import IdPool
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE
from tests.pipelines.sink.model import Away, Killed, Life, World, expected, rows_of, run_batch


@dataclass
class Program:
    """Writes versions, in workers that live on when a write has failed."""

    world: World = field(default_factory=World)
    pool: IdPool = field(default_factory=IdPool)

    def write(self, version: int, tasks: int = 2, in_doubt: str = FAIL) -> None:
        life = Life(self.world, pool=self.pool)
        asyncio.run(run_batch(life, version, tasks, in_doubt, is_in_step=False))

    def attempt(self, version: int, tasks: int, life: Life) -> bool:
        """Write with a fault; whether it went well. Who is killed comes back with other workers."""
        life.pool = self.pool
        try:
            asyncio.run(run_batch(life, version, tasks, loser=True, is_in_step=False))
        except Killed:
            self.pool = IdPool()
            return False
        except Away:
            return False
        return True

    def check(self) -> None:
        """What was decided is there, whole and once, and nothing else is."""
        decided = {note.batch for note in self.world.decisions}
        assert self.world.visible() == Counter(row for batch in decided for row in rows_of(batch))
        assert "open" not in self.world.states.values()


@pytest.mark.parametrize("fault", [Away, Killed])
@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("dies_after", [False, True])
def test_a_program_that_continues_after_a_write_failed_anywhere_loses_nothing_decided(
    fault, is_lasting, dies_after
):
    step = 1
    while True:
        program = Program()
        program.write(0)
        life = Life(program.world, step, dies_after, fault, is_lasting)
        is_well = program.attempt(1, 2, life)
        program.write(2, 3)
        program.write(3)
        program.check()
        assert {0, 2, 3} <= {note.batch for note in program.world.decisions}
        if is_well:
            assert 1 in {note.batch for note in program.world.decisions}
        if life.step < step:
            assert step > 10
            return
        step += 1


FAULTS = st.tuples(st.integers(1, 25), st.booleans(), st.sampled_from([Away, Killed]), st.booleans())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(FAULTS, st.integers(1, 3), st.booleans()), max_size=12))
def test_many_faults_with_repeats_and_without(attempts):
    program, version = Program(), 0
    for fault, tasks, repeats in attempts:
        is_well = program.attempt(version, tasks, Life(program.world, *fault))
        if is_well:
            assert version in {note.batch for note in program.world.decisions}
        if is_well or not repeats:
            version += 1
    program.write(version)
    program.write(version + 1)
    program.check()


def decided(program: Program, version: int) -> Note:
    """A version whose note is written, and whose parts are open."""
    parts = tuple(program.world.write_part(rows_of(version)[task::2]) for task in range(2))
    program.world.note = Note(version, 6, parts)
    program.world.decisions.append(program.world.note)
    return program.world.note


def test_a_decision_that_timed_out_is_reported_to_the_next_write_and_can_be_written_again():
    for goes_back in (False, True):
        program = Program()
        decided(program, 0)
        program.world.time_out()
        with pytest.raises(NotDecided, match="batch 0 was decided, but timed out"):
            program.write(1)
        if goes_back:
            program.write(0)
        program.write(1)
        assert program.world.visible() == (expected(2) if goes_back else Counter(rows_of(1)))


def test_a_decision_that_is_half_lost_stops_later_writes_until_an_operator_decides():
    program = Program()
    note = decided(program, 0)
    program.world.states[note.parts[0]] = "committed"
    program.world.time_out()
    for _ in range(2):
        with pytest.raises(InDoubt, match="1 of 2 parts of batch 0 timed out"):
            program.write(1)
    program.write(1, in_doubt=SKIP)
    program.write(2)
    assert program.world.visible() == Counter(rows_of(0)[0::2] + rows_of(1) + rows_of(2))


def test_a_half_lost_version_that_was_let_go_is_not_asked_about_again():
    program = Program()
    note = decided(program, 0)
    program.world.states[note.parts[0]] = "committed"
    program.world.time_out()
    program.write(0, in_doubt=SKIP)
    program.write(0)
    program.write(1)
    assert program.world.visible() == Counter(rows_of(0)[0::2] + rows_of(1))


def test_a_half_lost_version_is_written_again_if_a_person_says_so():
    program = Program()
    note = decided(program, 0)
    program.world.states[note.parts[0]] = "committed"
    program.world.time_out()
    with pytest.raises(NotDecided):
        program.write(1, in_doubt=WRITE)
    program.write(0)
    program.write(1)
    assert program.world.visible() == expected(2) + Counter(rows_of(0)[0::2])


def test_what_a_broker_has_forgotten_since_does_not_hold_up_a_version_that_went_well():
    program = Program()
    program.write(0)
    program.world.holders.clear()
    program.write(0)
    program.write(1)
    assert program.world.visible() == expected(2)


def test_an_id_that_the_note_names_is_not_taken_over_so_no_later_abort_is_mistaken_for_its_end():
    program = Program()
    life = Life(program.world, pool=program.pool)
    asyncio.run(run_batch(life, 0, 2))
    assert program.world.note is not None
    # Its end is known here from the ids alone, as it is to a stream's replay.
    named = {part.transactional_id for part in program.world.note.parts}
    for _ in range(3):
        taken = program.pool.take("q", 1, program.world.note)
        assert taken not in named
        program.world.states[program.world.write_part([], taken)] = "aborted"
    asyncio.run(run_batch(life, 0, 2))
    assert program.world.visible() == expected(1)


def test_decided_parts_are_no_strangers():
    program = Program()
    note = decided(program, 0)
    lost_attempt = program.world.write_part(rows_of(1))
    asyncio.run(run_batch(Life(program.world), 1, 2))
    assert [program.world.states[part] for part in note.parts] == ["open", "open"]
    assert program.world.states[lost_attempt] == "aborted"
