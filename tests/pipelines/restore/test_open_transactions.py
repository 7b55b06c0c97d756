"""Open transactions in the files end as the restarted broker would end them."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.client.transactional import TransactionalProducer
from runnel.log.names import MANIFEST, RECOVERY_POINTS
from runnel.model.ids import TopicPartition
from runnel.pipelines.restore.data_folder import DataFolder
from runnel.pipelines.restore.internal_topics import TransactionState, transactions_in
from runnel.pipelines.restore.restore_state import await_stable_end
from runnel.pipelines.restore.segments import Scan, scan, valid_batches
from runnel.schemas.coordinator import encode_key, encode_value
from runnel.schemas.txn import PartitionsSchema, TransactionLogKey, TransactionLogValue
from runnel.testing import Broker
from tests.client.hanging import set_transaction_version
from tests.pipelines.restore.steps import leave_open, log_of, rows_in, rows_of_broker

PLACE = TopicPartition("orders", 0)
NAMES = ["one", "two", "drei €"]


def checked(broker: Broker) -> Scan:
    (found,) = DataFolder(str(broker.data_dir)).checked([scan(log_of(broker), "orders", 0, 0)])
    return found


def cut_off_last_batch(path: Path) -> None:
    with path.open("rb") as file:
        *_, (position, _, _) = valid_batches(file.fileno(), 0, path.stat().st_size)
    os.truncate(path, position)


def states_of(broker: Broker) -> Path:
    """The file in which the only transactional id is noted."""
    files = Path(str(broker.data_dir)).glob("__transaction_state-*/*.log")
    (path,) = [path for path in files if path.stat().st_size]
    return path


def killed_before_the_markers(broker: Broker, *, is_committed: bool) -> None:
    """A transaction ends, its client gets the response, and the broker dies before the marker is written."""

    async def work(cluster) -> None:
        async with TransactionalProducer(cluster, "one") as producer:
            for values, is_commit in (([b"a"], True), ([b"b", b"c"], is_committed)):
                await producer.begin()
                for value in values:
                    await producer.send("orders", value, partition=0)
                await producer.flush()
                await (producer.commit() if is_commit else producer.abort())

    with broker.client() as client:
        client.create_topic("orders", partitions=1)
        client.run(work)
        client.run(lambda cluster: await_stable_end(cluster, PLACE))
    broker.stop()
    (log,) = log_of(broker).glob("*.log")
    cut_off_last_batch(log)
    cut_off_last_batch(states_of(broker))
    for name in (MANIFEST, RECOVERY_POINTS):
        os.remove(Path(str(broker.data_dir), name))


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("level", [1, 2])
def test_what_was_decided_before_the_broker_died_counts(runnel, level, is_committed):
    if level < 2:
        set_transaction_version(runnel, level)
    killed_before_the_markers(runnel, is_committed=is_committed)
    found = checked(runnel)
    restored = rows_in(found)
    assert [value for *_, value in restored] == [b"a", *([b"b", b"c"] if is_committed else [])]
    assert found.records == len(restored)
    # It was decided: no record of it is omitted.
    assert (found.notes, found.damages) == ([], [])
    runnel.start()
    with runnel.client() as client:
        client.run(lambda cluster: await_stable_end(cluster, PLACE))
    assert rows_of_broker(runnel) == restored


def test_undecided_transactions_are_omitted_and_reported(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        client.run(lambda cluster: leave_open(cluster, "orders", "two"))
    runnel.stop()
    found = checked(runnel)
    assert rows_in(found) == []
    (transaction,) = found.open
    assert found.notes == [
        f"orders-0: 1 records of producer {transaction.producer_id} (transactional id two) are omitted: "
        "their transaction was never committed"
    ]
    # Without the coordinator's records, the outcome is unknown.
    path = states_of(runnel)
    os.truncate(path, 0)
    found = checked(runnel)
    assert "an unknown outcome" in found.notes[0]
    assert any(path.parent.name in damage for damage in found.damages)


@pytest.mark.parametrize(
    ("version", "epoch", "ends"), [(0, 6, False), (0, 7, True), (0, 8, True), (2, 7, False), (2, 8, True)]
)
def test_a_decision_is_of_one_epoch_and_of_its_partitions(version, epoch, ends):
    """The transaction is of epoch 7: since the newer protocol, its end has the next one."""
    for status in (2, 3):
        known = TransactionState("one", status, epoch, version, frozenset({PLACE}))
        assert known.completes(PLACE, 7) is ends
        assert not known.completes(TopicPartition("orders", 1), 7)
    assert not TransactionState("one", 1, epoch, version, frozenset({PLACE})).completes(PLACE, 7)
    assert not TransactionState("one", 4, epoch, version, frozenset({PLACE})).completes(PLACE, 7)


notes = st.tuples(
    st.sampled_from(NAMES),
    st.none()
    | st.tuples(
        st.integers(0, 1),
        st.integers(0, 5),
        st.integers(0, 2**15 - 1),
        st.integers(0, 6),
        st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 9), max_size=2)),
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(notes, max_size=8))
def test_the_notes_of_a_coordinator_are_read_as_it_writes_them(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("__transaction_state-0")
    newest: dict[str, TransactionState] = {}
    data = bytearray()
    for offset, (name, note) in enumerate(written):
        key = encode_key(TransactionLogKey(transactional_id=name))
        newest.pop(name, None)
        value = None
        if note is not None:
            version, producer_id, epoch, status, topics = note
            # No two ids have the same producer.
            producer_id = producer_id * 3 + NAMES.index(name)
            partitions = (
                None if topics is None else [PartitionsSchema(topic, all_) for topic, all_ in topics.items()]
            )
            value = TransactionLogValue(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_status=status,
                transaction_partitions=partitions,
                client_transaction_version=2 * version,
                previous_producer_id=-1 if version == 0 else 77,
            )
            places = frozenset(
                TopicPartition(topic, one) for topic, all_ in (topics or {}).items() for one in all_
            )
            newest[name] = TransactionState(name, status, epoch, 2 * version, places)
        record = Record(offset, 1, key, None if value is None else encode_value(value, version))
        data += build_batch([record], base_offset=offset)
    (folder / f"{0:020d}.log").write_bytes(data)
    found = scan(folder, "__transaction_state", 0, 0)
    known = transactions_in([found])
    assert {one.transactional_id: one for one in known.values()} == newest
    assert found.damages == []


def test_an_unreadable_coordinator_record_is_reported_and_decides_nothing(tmp_path):
    key = encode_key(TransactionLogKey(transactional_id="one"))
    good = encode_value(TransactionLogValue(producer_id=5, transaction_status=2), 1)
    batches = [
        build_batch([Record(0, 1, key, good)], base_offset=0),
        build_batch([Record(1, 1, key, b"\x00\x63?")], base_offset=1),
    ]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    found = scan(tmp_path, "__transaction_state", 0, 0)
    assert transactions_in([found]) == {}
    assert len(found.damages) == 1
