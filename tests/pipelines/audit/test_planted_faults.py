"""Faults planted into the files of a stopped broker: found in its folder, and through the broker again."""

import pytest

from runnel.client.admin import Admin
from runnel.client.transactional import TransactionalProducer
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.broker_batches import read_broker_piece
from runnel.pipelines.audit.findings import Level
from runnel.pipelines.audit.judge import PartitionJudge, Terms
from runnel.pipelines.audit.pieces import cut
from runnel.pipelines.broker import BrokerView
from runnel.testing import Broker
from tests.pipelines.audit.logs import (
    audit_folder,
    flip_byte,
    forget_shutdown,
    remove_range,
    segment_of,
    told,
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


def audit_broker(broker, offsets_max=10**9):
    """The verdict about orders-0, read from the running broker."""
    with BrokerView(broker.bootstrap_servers) as view:
        (partition,) = view.partitions(["orders"])
        start, end = (
            view.earliest_offsets([partition])[partition],
            view.latest_offsets([partition])[partition],
        )
    judge = PartitionJudge(Terms("orders", 0, start, end))
    for piece in cut("orders", 0, start, end, offsets_max):
        for fact in read_broker_piece(broker.bootstrap_servers, piece):
            judge.saw(fact)
    return judge.ended()


def test_a_sound_log_passes_whole_and_in_pieces(broker):
    for offsets_max in (10**9, 33, 1):
        verdict = audit_broker(broker, offsets_max)
        assert verdict.findings == []
        assert (verdict.counts.records, verdict.counts.batches) == (RECORDS, BATCHES)
    broker.stop()
    verdict = audit_folder(broker.data_dir, "orders")
    assert (verdict.findings, verdict.counts.records) == ([], RECORDS)


def test_a_lost_range(broker):
    broker.stop()
    first, last = remove_range(segment_of(broker.data_dir, "orders"), 95)
    verdict = audit_folder(broker.data_dir, "orders")
    assert told(verdict) == [("lost range", first, last)]
    forget_shutdown(broker.data_dir)
    broker.start()
    assert told(audit_broker(broker)) == [("lost range", first, last)]


def test_a_lost_end(broker):
    broker.stop()
    first, last = remove_range(segment_of(broker.data_dir, "orders"), RECORDS - 1)
    assert told(audit_folder(broker.data_dir, "orders")) == [("lost range", first, last)]


def test_a_lost_segment_file(broker):
    broker.stop()
    segment_of(broker.data_dir, "orders").unlink()
    assert told(audit_folder(broker.data_dir, "orders")) == [("lost range", 0, RECORDS - 1)]


def test_a_duplicate(broker):
    broker.stop()
    source, first, last = write_again(segment_of(broker.data_dir, "orders"), 42)
    verdict = audit_folder(broker.data_dir, "orders")
    assert told(verdict) == [("duplicate", first, last)]
    assert f"at offset {source} already" in verdict.findings[0].text


@pytest.mark.parametrize("offset", [0, 150, RECORDS - 1])
def test_a_flipped_byte(broker, offset):
    broker.stop()
    first, last = flip_byte(segment_of(broker.data_dir, "orders"), offset)
    assert told(audit_folder(broker.data_dir, "orders")) == [("damaged batch", first, last)]
    broker.start()
    for offsets_max in (10**9, 33):
        assert told(audit_broker(broker, offsets_max)) == [("damaged batch", first, last)]


@pytest.mark.parametrize("place", [2, 9, 11, 16, 22, 25, 50])
def test_a_flipped_byte_of_a_header_is_found_by_whoever_reads_it(broker, place):
    broker.stop()
    first, last = flip_byte(segment_of(broker.data_dir, "orders"), 150, place)
    in_folder = told(audit_folder(broker.data_dir, "orders"))
    assert len(in_folder) == 1 and in_folder[0][1:] == (first, last)
    broker.start()
    served = told(audit_broker(broker))
    assert served and served[0][1] == first


def test_transactions_compaction_and_deleted_records_raise_no_alarm(broker):
    with broker.client() as client:

        async def transactions(cluster):
            async with TransactionalProducer(cluster, "billing") as producer:
                for number in range(6):
                    await producer.begin()
                    for index in range(5):
                        await producer.send_and_wait("orders", b"%d" % index, key=b"paid")
                    await (producer.commit() if number % 2 else producer.abort())

        client.run(transactions)
    verdict = audit_broker(broker)
    assert verdict.findings == []
    assert (verdict.counts.committed, verdict.counts.aborted) == (RECORDS + 15, 15)
    assert verdict.counts.control == 6

    with broker.client() as client:
        client.run(lambda cluster: Admin(cluster).delete_records({TopicPartition("orders", 0): 77}))
    verdict = audit_broker(broker)
    assert (verdict.start_offset, told(verdict, Level.FAULT)) == (77, [])
    broker.stop()
    assert told(audit_folder(broker.data_dir, "orders")) == []
