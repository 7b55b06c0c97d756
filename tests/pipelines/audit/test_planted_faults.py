"""Faults injected into the files of a stopped broker are found in its folder and through the broker."""

import time
from pathlib import Path

import pytest

from runnel.client.admin import Admin
from runnel.client.transactional import TransactionalProducer
from runnel.messages.fetch import PartitionData
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit import broker_batches
from runnel.pipelines.audit.broker_batches import read_broker_split
from runnel.pipelines.audit.checker import PartitionChecker, PartitionInfo
from runnel.pipelines.audit.findings import Level
from runnel.pipelines.audit.splits import split_offsets
from runnel.pipelines.broker import BrokerView
from runnel.testing import Broker
from tests.pipelines.audit.logs import (
    audit_folder,
    flip_byte,
    forget_shutdown,
    remove_range,
    reported,
    segment_of,
    write_again,
)

RECORDS = 200
BATCHES = 20


@pytest.fixture
def broker():
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("orders", partitions=1)
            for number in range(BATCHES):
                pairs = [(b"key", b"order %d-%d" % (number, index)) for index in range(RECORDS // BATCHES)]
                client.send_all("orders", pairs)
        yield broker


def audit_broker(broker, offsets_max=10**9, **info):
    """The result for orders-0, read from the running broker."""
    with BrokerView(broker.bootstrap_servers) as view:
        (partition,) = view.partitions(["orders"])
        start, end = (
            view.earliest_offsets([partition])[partition],
            view.latest_offsets([partition])[partition],
        )
    checker = PartitionChecker(PartitionInfo("orders", 0, start, end, **info))
    for split in split_offsets("orders", 0, start, end, offsets_max):
        for summary in read_broker_split(broker.bootstrap_servers, split):
            checker.add(summary)
    return checker.finish()


def test_a_valid_log_passes_with_any_split_size(broker):
    for offsets_max in (10**9, 33, 1):
        result = audit_broker(broker, offsets_max)
        assert result.findings == []
        assert (result.counts.records, result.counts.batches) == (RECORDS, BATCHES)
    broker.stop()
    result = audit_folder(broker.data_dir, "orders")
    assert (result.findings, result.counts.records) == ([], RECORDS)


@pytest.mark.parametrize(("high_watermark", "is_throttled"), [(50, False), (RECORDS, True)])
def test_a_lagging_high_watermark_is_not_a_loss(broker, monkeypatch, high_watermark, is_throttled):
    fetch = broker_batches._fetch
    empty = PartitionData(partition_index=0, high_watermark=high_watermark, records=b"")
    answers = [(empty, is_throttled)] * 5

    async def fetch_in_the_end(*question):
        return answers.pop() if answers else await fetch(*question)

    monkeypatch.setattr(broker_batches, "_fetch", fetch_in_the_end)
    monkeypatch.setattr(broker_batches, "_PAUSE_S", 0.01)
    result = audit_broker(broker)
    assert (result.findings, result.counts.records, answers) == ([], RECORDS, [])


def test_a_log_that_stays_short_has_lost_its_end(broker, monkeypatch):
    empty = PartitionData(partition_index=0, high_watermark=50, records=b"")

    async def fetch(*question):
        return empty, False

    monkeypatch.setattr(broker_batches, "_fetch", fetch)
    monkeypatch.setattr(broker_batches, "STALL_TIMEOUT_S", 0.3)
    assert reported(audit_broker(broker)) == [("lost range", 0, RECORDS - 1)]


def test_a_lost_range(broker):
    broker.stop()
    first, last = remove_range(segment_of(broker.data_dir, "orders"), 95)
    result = audit_folder(broker.data_dir, "orders")
    assert reported(result) == [("lost range", first, last)]
    forget_shutdown(broker.data_dir)
    broker.start()
    assert reported(audit_broker(broker)) == [("lost range", first, last)]


def test_a_lost_end(broker):
    broker.stop()
    first, last = remove_range(segment_of(broker.data_dir, "orders"), RECORDS - 1)
    assert reported(audit_folder(broker.data_dir, "orders")) == [("lost range", first, last)]


def test_a_lost_segment_file(broker):
    broker.stop()
    segment_of(broker.data_dir, "orders").unlink()
    assert reported(audit_folder(broker.data_dir, "orders")) == [("lost range", 0, RECORDS - 1)]


def test_a_duplicate(broker):
    broker.stop()
    source, first, last = write_again(segment_of(broker.data_dir, "orders"), 42)
    result = audit_folder(broker.data_dir, "orders")
    assert reported(result) == [("duplicate", first, last)]
    assert f"at offset {source} already" in result.findings[0].text


@pytest.mark.parametrize("offset", [0, 150, RECORDS - 1])
def test_a_flipped_byte(broker, offset):
    broker.stop()
    first, last = flip_byte(segment_of(broker.data_dir, "orders"), offset)
    assert reported(audit_folder(broker.data_dir, "orders")) == [("damaged batch", first, last)]
    broker.start()
    for offsets_max in (10**9, 33):
        assert reported(audit_broker(broker, offsets_max)) == [("damaged batch", first, last)]


@pytest.mark.parametrize("byte", [2, 9, 11, 16, 22, 25, 50])
def test_a_flipped_byte_of_a_header_is_found_by_every_reader(broker, byte):
    broker.stop()
    first, last = flip_byte(segment_of(broker.data_dir, "orders"), 150, byte)
    in_folder = reported(audit_folder(broker.data_dir, "orders"))
    assert len(in_folder) == 1 and in_folder[0][1:] == (first, last)
    broker.start()
    served = reported(audit_broker(broker))
    assert served and served[0][1] == first


def test_transactions_compaction_and_deleted_records_are_not_faults(broker):
    with broker.client() as client:

        async def transactions(cluster):
            async with TransactionalProducer(cluster, "billing") as producer:
                for number in range(6):
                    await producer.begin()
                    for index in range(5):
                        await producer.send_and_wait("orders", b"%d" % index, key=b"paid")
                    await (producer.commit() if number % 2 else producer.abort())

        client.run(transactions)
    result = audit_broker(broker)
    assert result.findings == []
    assert (result.counts.committed, result.counts.aborted) == (RECORDS + 15, 15)
    assert result.counts.control == 6

    with broker.client() as client:
        client.run(lambda cluster: Admin(cluster).delete_records({TopicPartition("orders", 0): 77}))
    result = audit_broker(broker)
    assert (result.start_offset, reported(result, Level.FAULT)) == (77, [])
    broker.stop()
    assert reported(audit_folder(broker.data_dir, "orders")) == []


@pytest.mark.runnel({"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 200})
def test_compaction_is_explained_and_a_loss_after_it_is_not(runnel):
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1024 * 1024),
        "max.compaction.lag.ms": "1000",
    }
    with runnel.client() as client:
        client.create_topic("orders", partitions=1, settings=settings)
        for number in range(60):
            client.send_all(
                "orders", [(b"k%d" % (number % 2), b"x" * 30_000), (b"%d" % number, b"y" * 30_000)]
            )
    deadline = time.monotonic() + 30
    while (result := audit_broker(runnel, is_compacted=True)).counts.records == 120:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.2)
    assert reported(result) == []
    runnel.stop()
    result = audit_folder(runnel.data_dir, "orders")
    assert (reported(result), result.counts.lost) == ([], 0)
    # The last segment is never compacted: what is missing there is lost.
    last_segment = max((Path(runnel.data_dir) / "orders-0").glob("*.log"))
    first, last = remove_range(last_segment, 118)
    assert reported(audit_folder(runnel.data_dir, "orders")) == [("lost range", first, last)]
