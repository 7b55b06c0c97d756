"""Batches keep their order, sequence numbers and content across retries."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import encode_record
from runnel.batch.header import read_header
from runnel.batch.records import Record, iterate_records
from runnel.client.accumulator import Accumulator, Delivery, ProducerIdentity, record_size_bytes
from runnel.model.ids import TopicPartition

HERE = TopicPartition("t", 0)
ME = ProducerIdentity(producer_id=9, producer_epoch=1)


def waiter() -> "asyncio.Future[Delivery]":
    loop = asyncio.new_event_loop()
    try:
        return loop.create_future()
    finally:
        loop.close()


def record(value: bytes) -> Record:
    return Record(0, 1, None, value)


def add(batches: Accumulator, value: bytes) -> None:
    batches.add(HERE, record(value), waiter(), 0.0)


@given(st.lists(st.binary(max_size=30), min_size=1), st.lists(st.booleans()))
def test_every_record_is_sent_in_order_with_gapless_sequences(values, retries):
    batches = Accumulator(batch_bytes=150, compression=0)
    for value in values:
        add(batches, value)
    sent: list[bytes | None] = []
    outcomes = iter(retries)
    while batches.ready(now_s=1.0):
        batch = batches.take(HERE, ME)
        assert batch.encoded is not None
        header = read_header(batch.encoded)
        assert header.base_sequence == len(sent)
        if next(outcomes, False):
            before = bytes(batch.encoded)
            batches.requeue(batch, not_before_s=1.0)
            add(batches, b"later")
            values = [*values, b"later"]
            again = batches.take(HERE, ME)
            assert bytes(again.encoded or b"") == before
            batch = again
        sent += [item.value for item in iterate_records(bytes(batch.encoded or b""))]
        batches.complete(batch)
    assert sent == values
    assert batches.is_empty and batches.size_bytes == 0


@given(st.lists(st.binary(max_size=30), min_size=1), st.sets(st.integers(0, 30)))
def test_a_rejected_batch_is_sent_in_halves_until_only_bad_records_fail(values, bad):
    batches = Accumulator(batch_bytes=400, compression=0)
    for number, value in enumerate(values):
        add(batches, b"%03d" % number + value)
    written: list[bytes | None] = []
    refused: list[bytes | None] = []
    while batches.ready(now_s=1.0):
        batch = batches.take(HERE, ME)
        header = read_header(batch.encoded or b"")
        # What a broker expects: the numbers of rejected batches are used again.
        assert header.base_sequence == len(written)
        here = [item.value or b"" for item in iterate_records(bytes(batch.encoded or b""))]
        if not any(int(value[:3]) in bad for value in here):
            written += here
            batches.complete(batch)
        elif len(here) > 1:
            batches.split(batch)
        else:
            refused += here
            batches.rewind(batch)
            batches.complete(batch)
    everything = [b"%03d" % number + value for number, value in enumerate(values)]
    assert refused == [value for value in everything if int(value[:3]) in bad]
    assert written == [value for value in everything if int(value[:3]) not in bad]
    assert batches.is_empty and batches.size_bytes == 0


def test_one_batch_per_partition_is_in_flight():
    batches = Accumulator(batch_bytes=50, compression=0)
    add(batches, b"x" * 40)
    add(batches, b"y" * 40)
    batches.take(HERE, ME)
    assert batches.ready(now_s=1.0) == []


def test_a_requeued_batch_reports_its_retry_time():
    batches = Accumulator(batch_bytes=50, compression=0)
    add(batches, b"x")
    batches.requeue(batches.take(HERE, ME), not_before_s=7.0)
    assert (batches.ready(now_s=6.0), batches.next_retry_s(now_s=6.0)) == ([], 7.0)
    assert (batches.ready(now_s=7.0), batches.next_retry_s(now_s=7.0)) == ([HERE], None)


def test_a_new_producer_id_restarts_sequence_numbers():
    batches = Accumulator(batch_bytes=50, compression=0)
    add(batches, b"x")
    batches.complete(batches.take(HERE, ME))
    batches.reset_sequences()
    add(batches, b"y")
    assert read_header(batches.take(HERE, ProducerIdentity(10, 0)).encoded or b"").base_sequence == 0


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200), st.text(max_size=20))
def test_the_estimated_size_is_an_upper_bound(value, key, header):
    item = Record(0, 1, key, value, [(header, value)])
    assert record_size_bytes(item) >= len(encode_record(2**40, 2**20, key, value, item.headers))


def test_partitions_without_records_are_not_looked_through() -> None:
    batches = Accumulator(batch_bytes=100, compression=0)
    for number in range(50):
        partition = TopicPartition("t", number)
        batches.add(partition, record(b"a"), waiter(), 0.0)
        assert batches.ready(now_s=1.0) == [partition]
        batches.complete(batches.take(partition, ME))
        assert batches.is_empty and not batches._queues


def test_an_open_batch_takes_records_until_it_is_full_or_sent() -> None:
    batches = Accumulator(batch_bytes=100, compression=0)
    assert not batches.add_to_open(HERE, record(b"a"), waiter())
    add(batches, b"a")
    size_bytes = record_size_bytes(record(b"a"))
    assert [batches.add_to_open(HERE, record(b"a"), waiter()) for _ in range(4)] == [
        (count + 1) * size_bytes <= 100 for count in range(1, 5)
    ]
    batch = batches.take(HERE, ME)
    assert len(batch.records) == 100 // size_bytes
    batches.requeue(batch, not_before_s=0.0)
    assert not batches.add_to_open(HERE, record(b"a"), waiter())
