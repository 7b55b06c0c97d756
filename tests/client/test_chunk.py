"""Visible messages of fetched batches."""

import pytest

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import patch_offset_and_epoch
from runnel.batch.records import Record
from runnel.client.chunk import Chunk, NoRoom, Room
from runnel.client.errors import BrokerError
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

HERE = TopicPartition("t", 3)


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    return build_batch(
        [Record(0, 5, b"k", value, [("h", b"1")]) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(base_offset: int, producer_id: int, committed: bool) -> bytearray:
    control = build_end_marker(
        EndMarker(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=5
    )
    patch_offset_and_epoch(control, 0, base_offset, 0)
    return control


def chunk(*batches: bytearray, from_offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Chunk:
    records = memoryview(b"".join(batches))
    return Chunk(HERE, records, from_offset, 0, aborted)


def seen(view: Chunk) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in view.messages()]


def test_messages_start_at_the_offset_inside_a_batch():
    view = chunk(batch(10, b"a", b"b", b"c"), batch(13, b"d"), from_offset=11)
    assert seen(view) == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert view.next_offset == 14


def test_a_message_has_all_fields():
    [message] = chunk(batch(7, b"a")).messages()
    assert (message.topic, message.partition, message.offset, message.timestamp_ms) == ("t", 3, 7, 5)
    assert (message.key, message.value, list(message.headers)) == (b"k", b"a", [("h", b"1")])


def test_a_truncated_last_batch_is_skipped():
    whole = batch(1, b"b")
    view = chunk(batch(0, b"a"), whole[: len(whole) - 1])
    assert (seen(view), view.next_offset) == ([(0, b"a")], 1)


def test_aborted_records_are_skipped_until_their_marker():
    view = chunk(
        batch(0, b"lost", producer_id=1),
        batch(1, b"kept", producer_id=2),
        batch(2, b"plain"),
        marker(3, 1, committed=False),
        batch(4, b"again", producer_id=1),
        marker(5, 1, committed=True),
        marker(6, 2, committed=True),
        aborted=((1, 0),),
    )
    assert seen(view) == [(1, b"kept"), (2, b"plain"), (4, b"again")]
    assert view.next_offset == 7


def test_control_records_are_not_messages():
    assert seen(chunk(batch(0, b"a", producer_id=1), marker(1, 1, committed=True))) == [(0, b"a")]


def test_corrupt_batches_raise_an_error():
    damaged = batch(0, b"a")
    damaged[-1] ^= 1
    with pytest.raises(
        BrokerError, match="reading t-3: the checksum of the batch at offset 0 does not match"
    ):
        seen(chunk(damaged))


def test_garbage_raises_a_client_error():
    garbage = chunk(bytearray(100))
    with pytest.raises(BrokerError, match="reading t-3"):
        seen(garbage)
    with pytest.raises(BrokerError, match="reading t-3"):
        assert garbage.next_offset


def large(*, headers: int = 0) -> Chunk:
    """A few bytes that become ten thousand."""
    record = Record(0, 5, None, b"x" * 10_000, [("", None)] * headers)
    return chunk(build_batch([record], compression=Compression.ZSTD))


def test_batches_share_a_room() -> None:
    room = Room(15_000)
    first, second = large().messages(room), large().messages(room)
    assert next(first).offset == 0
    with pytest.raises(NoRoom):
        next(second)
    assert next(first, None) is None and room.held_bytes == 0
    assert next(large().messages(room)).offset == 0
    # Those that are not read any more hold nothing.
    assert room.held_bytes == 0


@pytest.mark.parametrize("room", [Room(5_000), Room(50_000, 5_000), Room(headers_max=2)])
def test_what_never_fits_is_an_error_of_its_own(room: Room) -> None:
    with pytest.raises(BrokerError) as refused:
        list(large(headers=3).messages(room))
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE and not refused.value.retriable
    assert room.held_bytes == 0
