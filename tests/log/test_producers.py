"""Idempotent producers: transcripts, rollback, expiry, and comparison with a model."""

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import SEQUENCE_MAX, BatchHeader, read_header
from runnel.batch.records import Record
from runnel.log.producer_snapshot import decode_producers, encode_producers
from runnel.log.producers import Producers
from runnel.model.errors import ApiError


def batch_header(producer: int, epoch: int, sequence: int, count: int = 1, **settings) -> BatchHeader:
    records = [Record(i, 1_000 + i, None, b"") for i in range(count)]
    return read_header(
        build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **settings)
    )


class World:
    """One partition that a script talks to; each line is a command, each answer a line behind `=`."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end_offset = 0
        self.written_offset = 0

    def play(self, line: str) -> str | None:
        verb, *words = line.split()
        numbers = {name: int(value) for name, value in (word.split("=") for word in words if "=" in word)}
        flags = {word for word in words if "=" not in word}
        answer: str | None = getattr(self, verb)(flags, **numbers)
        return answer

    def write(self, flags, id=1, epoch=0, seq=0, n=1, now=0) -> str:
        header = batch_header(id, epoch, seq, n, transactional="txn" in flags)
        try:
            duplicate = self.producers.stage(
                header, self.end_offset, now, from_client="coordinator" not in flags
            )
        except ApiError as error:
            return f"refused {error.error.name}"
        if duplicate is not None:
            return f"duplicate of {duplicate.base_offset}-{duplicate.last_offset}"
        self.end_offset += n
        return f"at {self.end_offset - n}"

    def end(self, flags, id=1, epoch=0, coordinator=0, now=0) -> str:
        marker = EndMarker("commit" in flags, coordinator)
        batch = build_end_marker(marker, producer_id=id, producer_epoch=epoch, timestamp_ms=now)
        try:
            self.producers.stage_marker(read_header(batch), marker, self.end_offset, now)
        except ApiError as error:
            return f"refused {error.error.name}"
        self.end_offset += 1
        return f"at {self.end_offset - 1}"

    def kept(self, _) -> None:
        self.producers.keep_staged()
        self.written_offset = self.end_offset

    def failed(self, _) -> None:
        self.producers.undo_staged()
        self.end_offset = self.written_offset

    def restart(self, _) -> None:
        snapshot = encode_producers(self.producers)
        self.producers = Producers()
        self.producers.restore(decode_producers(snapshot), now_ms=0)

    def expire(self, _, now=0, after=100) -> str:
        return f"{self.producers.expire(now, after)} expired"

    def show(self, _) -> str:
        return " ".join(
            f"{p.producer_id}@{p.epoch} seq={p.last_sequence} txn={p.transaction_start_offset}"
            for p in self.producers
        )

    def stable(self, _, below=None) -> str:
        if below is None:
            return str(self.producers.first_open_offset)
        return str(self.producers.first_unstable_offset(below))


SCRIPTS = {
    "a retry is answered with the first time's offset": """
        write seq=0 n=3
        = at 0
        write seq=3 n=2
        = at 3
        write seq=0 n=3
        = duplicate of 0-2
        write seq=3 n=2
        = duplicate of 3-4
        # The same first sequence with another count is not the same batch.
        write seq=3 n=1
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write seq=5
        = at 5
    """,
    "only the last five batches are remembered": """
        write seq=0
        = at 0
        write seq=1
        = at 1
        write seq=2
        = at 2
        write seq=3
        = at 3
        write seq=4
        = at 4
        write seq=0
        = duplicate of 0-0
        write seq=5
        = at 5
        write seq=1
        = duplicate of 1-1
        write seq=0
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
    """,
    "a gap is refused and changes nothing": """
        write seq=0
        = at 0
        write seq=2
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write seq=1
        = at 1
    """,
    "an unknown producer may begin anywhere": """
        write id=8 seq=500
        = at 0
        write id=8 seq=501
        = at 1
        write id=8 seq=499
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
    """,
    "a newer epoch begins at zero and fences the older": """
        write epoch=1 seq=7
        = at 0
        write epoch=2 seq=8
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write epoch=2 seq=0
        = at 1
        write epoch=1 seq=8
        = refused INVALID_PRODUCER_EPOCH
        # Not even as a duplicate: its producer has been fenced.
        write epoch=1 seq=7
        = refused INVALID_PRODUCER_EPOCH
        write epoch=2 seq=0
        = duplicate of 1-1
        # The sequences of the older epoch do not apply to the newer one.
        write epoch=2 seq=7
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
    """,
    "sequences wrap to zero": f"""
        write seq={SEQUENCE_MAX - 1} n=1
        = at 0
        write seq={SEQUENCE_MAX} n=3
        = at 1
        write seq={SEQUENCE_MAX} n=3
        = duplicate of 1-3
        write seq=2
        = at 4
        show
        = 1@0 seq=2 txn=-1
    """,
    "sequences wrap exactly at the end of a batch": f"""
        write seq={SEQUENCE_MAX}
        = at 0
        write seq=1
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write seq=0
        = at 1
    """,
    "a failed write leaves no trace": """
        write seq=0
        = at 0
        kept
        write seq=1
        = at 1
        write id=2 seq=9 txn
        = at 2
        write seq=2
        = at 3
        failed
        show
        = 1@0 seq=0 txn=-1
        stable
        = None
        # The retry of what failed is new, not a duplicate.
        write seq=1
        = at 1
    """,
    "batches in flight behind a failed write are retried after it": """
        write seq=0
        = at 0
        kept
        write seq=1
        = at 1
        write seq=2
        = at 2
        failed
        write seq=3
        = refused KAFKA_STORAGE_ERROR
        write seq=0
        = duplicate of 0-0
        write seq=2
        = refused KAFKA_STORAGE_ERROR
        write seq=1
        = at 1
        write seq=3
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write seq=2
        = at 2
    """,
    "a new producer does not begin behind a failed write": """
        write seq=0
        = at 0
        failed
        write seq=1
        = refused KAFKA_STORAGE_ERROR
        write seq=0
        = at 0
        write seq=1
        = at 1
    """,
    "a failed write of a new producer is remembered as long as producers are": """
        write seq=0 now=50
        = at 0
        failed
        expire now=149
        = 0 expired
        write seq=1 now=149
        = refused KAFKA_STORAGE_ERROR
        expire now=150
        = 0 expired
        # Its past is unknown now.
        write seq=1 now=150
        = at 0
    """,
    "a producer that does not retry a failed write has a gap": """
        write seq=0
        = at 0
        kept
        write seq=1
        = at 1
        failed
        write seq=2
        = refused KAFKA_STORAGE_ERROR
        write seq=2
        = refused KAFKA_STORAGE_ERROR
        write seq=2
        = refused KAFKA_STORAGE_ERROR
        write seq=2
        = refused KAFKA_STORAGE_ERROR
        write seq=2
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write epoch=1 seq=0
        = at 1
        write epoch=1 seq=2
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
    """,
    "the end of a failed write is undone too": """
        write txn seq=0
        = at 0
        kept
        end commit coordinator=3
        = at 1
        failed
        stable
        = 0
        end commit coordinator=1
        = at 1
    """,
    "a restart forgets nothing": """
        write seq=0 n=2
        = at 0
        write seq=2
        = at 2
        write id=2 txn
        = at 3
        kept
        restart
        write seq=0 n=2
        = duplicate of 0-1
        write seq=3
        = at 4
        stable
        = 3
    """,
    "producers out of sight are forgotten, unless a transaction is open": """
        write id=1 now=0
        = at 0
        write id=2 now=50
        = at 1
        write id=3 txn now=0
        = at 2
        expire now=99
        = 0 expired
        expire now=100
        = 1 expired
        show
        = 2@0 seq=0 txn=-1 3@0 seq=0 txn=2
        # Its past is unknown now, so it may go on where it was.
        write id=1 seq=1
        = at 3
    """,
    "a transaction opens with its first batch and closes with a marker": """
        write txn seq=0
        = at 0
        write txn seq=1
        = at 1
        write id=2 txn
        = at 2
        stable
        = 0
        end commit coordinator=5
        = at 3
        stable
        = 2
        end id=2 abort coordinator=5
        = at 4
        stable
        = None
        write txn seq=2
        = at 5
        stable
        = 5
    """,
    "a transaction is not left by the back door": """
        write txn seq=0
        = at 0
        write seq=1
        = refused INVALID_TXN_STATE
        end commit epoch=-1
        = refused INVALID_PRODUCER_EPOCH
        end commit coordinator=5
        = at 1
        end commit coordinator=4
        = refused TRANSACTION_COORDINATOR_FENCED
    """,
    "a marker with a newer epoch ends the old one's sequences": """
        write txn seq=40
        = at 0
        end abort epoch=1
        = at 1
        show
        = 1@1 seq=-1 txn=-1
        write epoch=0 seq=41
        = refused INVALID_PRODUCER_EPOCH
        write epoch=1 seq=41
        = refused OUT_OF_ORDER_SEQUENCE_NUMBER
        write epoch=1 seq=0
        = at 2
    """,
    "a marker for an unknown producer is remembered": """
        end abort id=6 epoch=3 coordinator=2
        = at 0
        show
        = 6@3 seq=-1 txn=-1
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_conversation(name):
    talk(SCRIPTS[name], World())


def talk(text: str, world: World) -> None:
    """Play a script; its answers must be the ones that it has."""
    script = dedent(text).strip().splitlines()
    transcript: list[str] = []
    for line in script:
        if line.startswith("="):
            continue
        transcript.append(line)
        if not line.startswith("#"):
            answer = world.play(line)
            if answer is not None:
                transcript.append(f"= {answer}")
    assert transcript == script


writes = st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 8), st.integers(1, 3))


@given(st.lists(writes, max_size=40))
def test_replaying_the_log_gives_the_state_that_wrote_it(attempts):
    live, replayed = Producers(), Producers()
    offset = 0
    for producer, epoch, sequence, count in attempts:
        header = batch_header(producer, epoch, sequence, count)
        try:
            duplicate = live.stage(header, offset, 0, from_client=True)
        except ApiError:
            continue
        if duplicate is None:
            header.base_offset = offset
            replayed.replay(header, None, 0)
            offset += count
    assert list(live) == list(replayed)


@given(st.lists(writes, max_size=40))
def test_no_sequence_is_ever_written_twice(attempts):
    """The twin keeps the whole history and looks through it."""
    producers = Producers()
    history: dict[tuple[int, int], list[int]] = {}
    for producer, epoch, sequence, count in attempts:
        try:
            duplicate = producers.stage(
                batch_header(producer, epoch, sequence, count), 0, 0, from_client=True
            )
        except ApiError:
            continue
        written = history.setdefault((producer, epoch), [])
        batch = list(range(sequence, sequence + count))
        if duplicate is not None:
            assert set(batch) <= set(written)
        else:
            assert not written or written[-1] + 1 == sequence
            written += batch


@given(st.lists(writes, max_size=20), st.lists(writes, max_size=20))
def test_undo_is_exact(before, after):
    producers = Producers()

    def try_all(attempts):
        for producer, epoch, sequence, count in attempts:
            try:
                producers.stage(batch_header(producer, epoch, sequence, count), 0, 0, from_client=True)
            except ApiError:
                continue

    try_all(before)
    producers.keep_staged()
    expected = sorted(producers, key=lambda p: p.producer_id)
    try_all(after)
    producers.undo_staged()
    assert sorted(producers, key=lambda p: p.producer_id) == expected


def test_batches_without_a_producer_are_not_remembered():
    producers = Producers()
    producers.replay(read_header(build_batch([Record(0, 0, None, None)])), None, 0)
    assert len(producers) == 0
