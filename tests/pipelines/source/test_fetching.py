"""Ranges read from a real broker: transactions, gaps, lost records, restarts of brokers."""

import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from runnel.client.admin import Admin
from runnel.messages.fetch import FetchRequest
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BrokerUnreachable, DamagedRecords, DataLost
from runnel.pipelines.source import fetching
from runnel.pipelines.source.connection import BlockingConnection
from runnel.pipelines.source.cursor import Chunk
from runnel.pipelines.source.fetching import FetchSettings, RangeFetcher
from runnel.testing import Broker
from runnel.wire import Request, Response
from tests.pipelines.source.tables import offsets, read_all, rows, send_in_transaction, source

ORDERS = TopicPartition("orders", 0)


def fetcher(broker: Broker, start: int, end: int, **changes: object) -> RangeFetcher:
    settings = FetchSettings(broker.bootstrap_servers, "tests", 1, 20.0, 1024 * 1024, True)
    return RangeFetcher(replace(settings, **changes), ORDERS, start, end)  # type: ignore[arg-type]


def fill(broker: Broker, count: int, *, partitions: int = 1, **settings: str) -> None:
    with broker.client() as client:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        client.create_topic("orders", partitions=partitions, settings=names)
        for number in range(count):
            # One by one: each is a batch of its own.
            client.send("orders", b"%d" % number)


def base_offsets(chunks: Iterable[Chunk]) -> list[int]:
    return [batch.header.base_offset for chunk in chunks for batch in chunk.batches]


def test_a_range_of_aborted_records_ends(runnel: Broker) -> None:
    fill(runnel, 2)
    send_in_transaction(runnel, "orders", [b"a", b"b"], commit=True, name="one")
    send_in_transaction(runnel, "orders", [b"c", b"d"], commit=False, name="two")
    # 0 1 plain, 2 3 committed, 4 its marker, 5 6 aborted, 7 its marker.
    assert offsets(runnel, subscribe="orders") == [0, 1, 2, 3]
    uncommitted = offsets(runnel, subscribe="orders", kafka__isolation__level="read_uncommitted")
    assert uncommitted == [0, 1, 2, 3, 5, 6]
    for start in range(8):
        for end in range(start + 1, 9):
            chunks = list(fetcher(runnel, start, end).chunks())
            assert all(isinstance(chunk, Chunk) for chunk in chunks)
    for piece in (1, 2, 3, 5):
        split = offsets(runnel, subscribe="orders", maxRecordsPerPartition=piece)
        assert split == [0, 1, 2, 3]


def test_an_open_transaction_bounds_the_readable_records(runnel: Broker) -> None:
    fill(runnel, 1)
    with runnel.client() as client:
        from runnel.client.transactional import TransactionalProducer

        async def begin(cluster):
            producer = TransactionalProducer(cluster, "open")
            await producer.begin()
            await (await producer.send("orders", b"undecided", partition=0))
            return producer

        producer = client.run(begin)
        client.send("orders", b"behind it", partition=0)
        assert offsets(runnel, subscribe="orders") == [0]
        client.run(lambda cluster: producer.close(flush=False))


@pytest.mark.runnel({"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 200})
def test_ranges_that_begin_or_end_in_a_compacted_gap(runnel: Broker) -> None:
    with runnel.client() as client:
        settings = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(1024 * 1024),
            "max.compaction.lag.ms": "1000",
        }
        client.create_topic("orders", partitions=1, settings=settings)
        # Batch by batch: segments roll between them.
        for number in range(60):
            client.send("orders", b"%d" % number + b"x" * 60_000, key=b"k%d" % (number % 2))
    deadline = time.monotonic() + 30
    while len(found := offsets(runnel, subscribe="orders")) == 60:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.2)
    assert found[-1] == 59
    kept = set(found)
    for piece in (1, 7, 25):
        split = offsets(runnel, subscribe="orders", maxRecordsPerPartition=piece)
        assert set(split) <= kept and split == sorted(set(split)) and split[-1] == 59


def test_records_deleted_before_they_are_read(runnel: Broker) -> None:
    fill(runnel, 10)
    table = source(runnel, subscribe="orders", failOnDataLoss="false")
    reader = table.reader(table.schema())
    planned = reader.partitions()
    with runnel.client() as client:
        client.run(lambda cluster: Admin(cluster).delete_records({ORDERS: 6}))
    with pytest.raises(DataLost, match=r"orders-0: offsets 0 to 9 .* holds offsets 6 to 9.*failOnDataLoss"):
        list(fetcher(runnel, 0, 10).chunks())
    assert [row["offset"] for row in read_all(reader, planned)] == [6, 7, 8, 9]
    everything = '{"orders": {"0": 0}}'
    with pytest.raises(DataLost, match="offsets 0 to 9 were requested, but offsets 6 to 9 are available"):
        rows(runnel, subscribe="orders", startingOffsets=everything)
    left = offsets(runnel, subscribe="orders", startingOffsets=everything, failOnDataLoss="false")
    assert left == [6, 7, 8, 9]


def test_records_that_never_arrive(runnel: Broker) -> None:
    fill(runnel, 3)
    with pytest.raises(
        DataLost, match=r"offsets 3 to 4 did not arrive within 0\.5 s: records are readable up to offset 3"
    ):
        list(fetcher(runnel, 0, 5, timeout_s=0.5).chunks())
    assert len(list(fetcher(runnel, 0, 5, timeout_s=0.5, fail_on_data_loss=False).chunks())) == 1
    with pytest.raises(DataLost, match="offsets 7 to 8 were requested, but the log now holds offsets 0 to 2"):
        list(fetcher(runnel, 7, 9, timeout_s=0.5).chunks())
    assert list(fetcher(runnel, 7, 9, timeout_s=0.5, fail_on_data_loss=False).chunks()) == []


def test_a_topic_recreated_after_planning(runnel: Broker) -> None:
    fill(runnel, 3)
    table = source(runnel, subscribe="orders")
    reader = table.reader(table.schema())
    planned = reader.partitions()
    with runnel.client() as client:
        client.delete_topic("orders")
    fill(runnel, 3)
    with pytest.raises(DataLost, match="orders-0: offsets 0 to 2 are missing: the topic was deleted"):
        list(reader.read(planned[0]))


def test_a_topic_recreated_while_it_is_read(runnel: Broker) -> None:
    fill(runnel, 50)
    reading = fetcher(runnel, 0, 50, max_bytes=200).chunks()
    next(reading)
    with runnel.client() as client:
        client.delete_topic("orders")
    fill(runnel, 50)
    with pytest.raises(DataLost, match="are missing: the topic was deleted and recreated"):
        list(reading)


def test_a_topic_deleted_while_it_is_read(runnel: Broker) -> None:
    fill(runnel, 3)
    with runnel.client() as client:
        client.delete_topic("orders")
    with pytest.raises(
        DataLost, match="orders-0: offsets 0 to 2 cannot be read: the topic or partition no longer exists"
    ):
        list(fetcher(runnel, 0, 3, timeout_s=1.0).chunks())
    assert list(fetcher(runnel, 0, 3, timeout_s=1.0, fail_on_data_loss=False).chunks()) == []


def test_a_restart_of_the_broker_is_awaited(runnel: Broker) -> None:
    fill(runnel, 50)
    reading = fetcher(runnel, 0, 50, max_bytes=200).chunks()
    first = next(reading)
    restarting = threading.Thread(target=runnel.restart)
    restarting.start()
    rest = list(reading)
    restarting.join()
    seen = base_offsets([first, *rest])
    assert seen == sorted(set(seen)) and seen[0] == 0
    assert sum(batch.header.record_count for chunk in (first, *rest) for batch in chunk.batches) == 50


class CutBeforeQuestions(BlockingConnection):
    """A connection that fails when its second fetch is sent."""

    fetches = 0

    def send(self, request: Request, answer: type[Response]) -> None:
        if isinstance(request, FetchRequest):
            self.fetches += 1
            if self.fetches == 2:
                self._socket.shutdown(socket.SHUT_RDWR)
        super().send(request, answer)


def test_received_records_are_kept_if_the_next_fetch_fails(runnel: Broker, monkeypatch) -> None:
    fill(runnel, 10)
    monkeypatch.setattr(fetching, "BlockingConnection", CutBeforeQuestions)
    found = list(fetcher(runnel, 0, 10, max_bytes=200).chunks())
    assert len(found) > 2, "there were questions to break"
    assert base_offsets(found) == list(range(10))


def test_the_timeout_excludes_the_time_of_the_caller(runnel: Broker) -> None:
    fill(runnel, 10)
    slow = fetcher(runnel, 0, 10, max_bytes=200, timeout_s=1.0)
    reading = slow.chunks()
    first = next(reading)
    time.sleep(1.1)
    assert slow._connection is not None
    slow._connection._socket.shutdown(socket.SHUT_RDWR)
    assert base_offsets([first, *reading]) == list(range(10))


def test_a_server_that_does_not_respond_is_skipped(runnel: Broker) -> None:
    fill(runnel, 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{runnel.bootstrap_servers}"
        settings = FetchSettings(servers, "tests", 1, 0.3, 1000, True)
        assert base_offsets(RangeFetcher(settings, ORDERS, 0, 1).chunks()) == [0]


def test_no_broker_answers() -> None:
    settings = FetchSettings("127.0.0.1:1,127.0.0.1:2", "tests", 1, 0.3, 1000, True)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:2"):
        list(RangeFetcher(settings, ORDERS, 0, 1).chunks())


def test_batches_larger_than_a_fetch(runnel: Broker) -> None:
    fill(runnel, 0, max_message_bytes="3000000")
    with runnel.client() as client:
        for number in range(3):
            client.send("orders", bytes([number]) * 900_000)
    found = rows(runnel, subscribe="orders", **{"kafka__max__partition__fetch__bytes": 1000})
    assert [(row["offset"], len(row["value"])) for row in found] == [(0, 900_000), (1, 900_000), (2, 900_000)]


def test_a_damaged_batch_is_reported_with_its_offset(runnel: Broker) -> None:
    fill(runnel, 3)
    runnel.stop()
    from pathlib import Path

    (segment,) = Path(runnel.data_dir or "").glob("orders-0/*.log")
    data = bytearray(segment.read_bytes())
    position = data.rindex(b"2")
    data[position] ^= 0x01
    segment.write_bytes(data)
    runnel.start()
    with pytest.raises(DamagedRecords, match="orders-0: the checksum of the batch at offset"):
        list(fetcher(runnel, 0, 3, timeout_s=3.0).chunks())
