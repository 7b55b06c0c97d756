"""The effect of fetch responses on a range, without a broker."""

import pytest

from runnel.batch.build import build_batch
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import patch_offset_and_epoch
from runnel.batch.records import Record
from runnel.client.errors import BrokerError
from runnel.messages.fetch import AbortedTransaction, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.source.cursor import Chunk, Cursor, Finished, LargerFetch, OutOfRange, Wait

COMMITTED = 1


def batch(offset: int, count: int = 1, producer: int = -1) -> bytearray:
    return build_batch(
        [Record(0, 1, None, b"v")] * count,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(offset: int, producer: int, *, committed: bool) -> bytearray:
    made = build_end_marker(EndMarker(committed, 0), producer_id=producer, producer_epoch=0, timestamp_ms=1)
    patch_offset_and_epoch(made, 0, offset, 0)
    return made


def answer(
    *batches: bytes | bytearray, end: int = 100, stable: int | None = None, aborted=()
) -> PartitionData:
    return PartitionData(
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        aborted_transactions=[
            AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
        ],
        records=b"".join(batches),
    )


def cursor(start: int, end: int, isolation: int = COMMITTED) -> Cursor:
    return Cursor(TopicPartition("orders", 0), start, end, isolation)


def seen(chunk: object) -> list[int]:
    assert isinstance(chunk, Chunk)
    return [packed.header.base_offset for packed in chunk.batches]


def test_batches_advance_the_position() -> None:
    reading = cursor(0, 10)
    assert seen(reading.answered(answer(batch(0, 3), batch(5, 2)), False)) == [0, 5]
    assert reading.position == 7 and not reading.is_done
    assert seen(reading.answered(answer(batch(12)), False)) == []
    assert reading.is_done


def test_aborted_records_are_skipped_until_their_marker() -> None:
    view = answer(
        batch(0, producer=7),
        batch(1, producer=8),
        batch(2),
        marker(3, 7, committed=False),
        batch(4, producer=7),
        marker(5, 8, committed=True),
        aborted=[(7, 0)],
    )
    assert seen(cursor(0, 6).answered(view, False)) == [1, 2, 4]
    assert seen(cursor(0, 6, isolation=0).answered(view, False)) == [0, 1, 2, 4]


def test_a_transaction_that_was_aborted_before_the_range_began() -> None:
    view = answer(batch(4, producer=7), marker(5, 7, committed=False), aborted=[(7, 0)])
    reading = cursor(4, 6)
    assert seen(reading.answered(view, False)) == []
    assert reading.is_done


def test_a_batch_that_begins_before_the_range() -> None:
    chunk = cursor(2, 4).answered(answer(batch(0, 3), batch(3, 5)), False)
    assert seen(chunk) == [0, 3]
    assert isinstance(chunk, Chunk) and (chunk.from_offset, chunk.to_offset) == (2, 4)


def test_a_range_ends_after_two_empty_responses() -> None:
    reading = cursor(5, 10)
    assert isinstance(reading.answered(answer(end=10), False), Wait)
    assert isinstance(reading.answered(answer(end=10), False), Finished)
    assert reading.is_done


def test_empty_responses_of_a_throttling_or_lagging_broker_do_not_count() -> None:
    reading = cursor(5, 10)
    for _ in range(5):
        assert isinstance(reading.answered(answer(end=10), True), Wait)
        assert isinstance(reading.answered(answer(end=9), False), Wait)
        assert isinstance(reading.answered(answer(end=10, stable=9), False), Wait)
    assert not reading.is_done
    assert isinstance(cursor(5, 10, isolation=0).answered(answer(end=10, stable=5), False), Wait)


def test_an_incomplete_batch_requires_a_larger_fetch() -> None:
    assert isinstance(cursor(0, 10).answered(answer(bytes(batch(0, 50))[:100]), False), LargerFetch)


def test_errors() -> None:
    out_of_range = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE.code)
    assert isinstance(cursor(0, 10).answered(out_of_range, False), OutOfRange)
    moved = PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER.code)
    with pytest.raises(BrokerError) as refused:
        cursor(0, 10).answered(moved, False)
    assert refused.value.retriable


def test_checksums_of_invisible_batches_are_verified() -> None:
    made = batch(0, producer=7)
    made[-2] ^= 1
    with pytest.raises(CorruptBatch, match="offset 0"):
        cursor(0, 10).answered(answer(made, aborted=[(7, 0)]), False)


def test_a_range_resumes_at_the_new_log_start() -> None:
    reading = cursor(0, 10)
    reading.resumed(6)
    assert reading.position == 6
    reading.resumed(3)
    assert reading.position == 6
