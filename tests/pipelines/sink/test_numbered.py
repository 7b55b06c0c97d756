"""An application with numbered writes that continues after a failed one loses no committed rows."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.pipelines.sink.decision import CommitMarker, InDoubt, NotDecided
from runnel.pipelines.sink.names import TransactionalIdPool
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE
from tests.pipelines.sink.model import Away, Killed, ModelBroker, Process, expected, rows_of, run_batch


@dataclass
class Program:
    """Writes versions in workers that survive a failed write."""

    world: ModelBroker = field(default_factory=ModelBroker)
    pool: TransactionalIdPool = field(default_factory=TransactionalIdPool)

    def write(self, version: int, tasks: int = 2, in_doubt: str = FAIL) -> None:
        life = Process(self.world, pool=self.pool)
        asyncio.run(run_batch(life, version, tasks, in_doubt, is_sequential=False))

    def attempt(self, version: int, tasks: int, life: Process) -> bool:
        """Write with a fault and return whether it succeeded. A killed process restarts with new workers."""
        life.pool = self.pool
        try:
            asyncio.run(run_batch(life, version, tasks, loser=True, is_sequential=False))
        except Killed:
            self.pool = TransactionalIdPool()
            return False
        except Away:
            return False
        return True

    def check(self) -> None:
        """Committed rows are visible exactly once, and no others are."""
        decided = {marker.batch for marker in self.world.decisions}
        assert self.world.visible() == Counter(row for batch in decided for row in rows_of(batch))
        assert "open" not in self.world.states.values()


@pytest.mark.parametrize("fault", [Away, Killed])
@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("fails_after", [False, True])
def test_continuing_after_a_failed_write_loses_no_committed_rows(fault, is_lasting, fails_after):
    step = 1
    while True:
        program = Program()
        program.write(0)
        life = Process(program.world, step, fails_after, fault, is_lasting)
        is_well = program.attempt(1, 2, life)
        program.write(2, 3)
        program.write(3)
        program.check()
        assert {0, 2, 3} <= {marker.batch for marker in program.world.decisions}
        if is_well:
            assert 1 in {marker.batch for marker in program.world.decisions}
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
        is_well = program.attempt(version, tasks, Process(program.world, *fault))
        if is_well:
            assert version in {marker.batch for marker in program.world.decisions}
        if is_well or not repeats:
            version += 1
    program.write(version)
    program.write(version + 1)
    program.check()


def decided(program: Program, version: int) -> CommitMarker:
    """A version whose marker is written, and whose parts are open."""
    parts = tuple(program.world.write_part(rows_of(version)[task::2]) for task in range(2))
    program.world.marker = CommitMarker(version, 6, parts)
    program.world.decisions.append(program.world.marker)
    return program.world.marker


def test_a_timed_out_version_is_reported_to_the_next_write_and_can_be_rewritten():
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


def test_a_partially_lost_version_blocks_later_writes_until_an_operator_decides():
    program = Program()
    marker = decided(program, 0)
    program.world.states[marker.parts[0]] = "committed"
    program.world.time_out()
    for _ in range(2):
        with pytest.raises(InDoubt, match="1 of 2 parts of batch 0 timed out"):
            program.write(1)
    program.write(1, in_doubt=SKIP)
    program.write(2)
    assert program.world.visible() == Counter(rows_of(0)[0::2] + rows_of(1) + rows_of(2))


def test_a_partially_lost_version_that_was_skipped_is_not_reported_again():
    program = Program()
    marker = decided(program, 0)
    program.world.states[marker.parts[0]] = "committed"
    program.world.time_out()
    program.write(0, in_doubt=SKIP)
    program.write(0)
    program.write(1)
    assert program.world.visible() == Counter(rows_of(0)[0::2] + rows_of(1))


def test_a_partially_lost_version_is_rewritten_on_request():
    program = Program()
    marker = decided(program, 0)
    program.world.states[marker.parts[0]] = "committed"
    program.world.time_out()
    with pytest.raises(NotDecided):
        program.write(1, in_doubt=WRITE)
    program.write(0)
    program.write(1)
    assert program.world.visible() == expected(2) + Counter(rows_of(0)[0::2])


def test_expired_ids_do_not_block_the_version_after_a_completed_one():
    program = Program()
    program.write(0)
    program.world.holders.clear()
    program.write(0)
    program.write(1)
    assert program.world.visible() == expected(2)


def test_an_id_in_the_commit_marker_is_not_reused_so_a_later_abort_is_not_its_outcome():
    program = Program()
    life = Process(program.world, pool=program.pool)
    asyncio.run(run_batch(life, 0, 2))
    assert program.world.marker is not None
    # Its outcome follows from the ids alone, as for the replay of a stream.
    named = {part.transactional_id for part in program.world.marker.parts}
    for _ in range(3):
        taken = program.pool.take("q", 1, program.world.marker)
        assert taken not in named
        program.world.states[program.world.write_part([], taken)] = "aborted"
    asyncio.run(run_batch(life, 0, 2))
    assert program.world.visible() == expected(1)


def test_committed_parts_are_not_orphans():
    program = Program()
    marker = decided(program, 0)
    lost_attempt = program.world.write_part(rows_of(1))
    asyncio.run(run_batch(Process(program.world), 1, 2))
    assert [program.world.states[part] for part in marker.parts] == ["open", "open"]
    assert program.world.states[lost_attempt] == "aborted"
