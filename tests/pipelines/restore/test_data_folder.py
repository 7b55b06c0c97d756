"""The data directory of a stopped broker has the rows that the broker would return."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.log.names import CLEANED, COMPACTION_SWAP
from runnel.log.swap import Swap, encode_swap
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadDataFolder
from runnel.pipelines.restore.data_folder import DataFolder, locked_data_folder
from runnel.pipelines.restore.expected import ExpectedContents
from runnel.pipelines.restore.segments import scan, valid_batches
from tests.pipelines.restore.steps import leave_open, log_of, rows_in, rows_of_broker

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start


def fill(broker, *, partitions: int = 1) -> None:
    """A topic with plain records, a tombstone, and transactions that were committed and aborted."""
    with broker.client() as client:
        client.create_topic("orders", partitions=partitions)
        client.send_all("orders", [(b"k%d" % number, b"v%d" % number) for number in range(20)])
        client.send("orders", None, key=b"gone", timestamp_ms=1234, headers=[("h", b"1")], partition=0)
    asyncio.run(_transactions(broker.bootstrap_servers))
    with broker.client() as client:
        client.send("orders", b"last", partition=0)


async def _transactions(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, TransactionalProducer(cluster, "one") as producer:
        for name, is_committed in (("a", True), ("b", False), ("c", True)):
            await producer.begin()
            await producer.send("orders", name.encode(), partition=0)
            await producer.flush()
            await (producer.commit() if is_committed else producer.abort())


def test_rows_are_those_that_the_broker_would_have_given(runnel):
    fill(runnel)
    expected = rows_of_broker(runnel)
    with runnel.client() as client:
        client.run(lambda cluster: leave_open(cluster, "orders"))
    runnel.stop()
    found = scan(log_of(runnel), "orders", 0, 0)
    assert rows_in(found) == expected
    assert found.records == len(expected)
    assert (found.damages, found.torn_bytes) == ([], 0)
    values = [row[3] for row in expected]
    assert b"b" not in values and b"never" not in [row[3] for row in rows_in(found)] and b"c" in values


def test_topics_are_listed_and_other_directories_are_rejected(runnel, tmp_path):
    fill(runnel, partitions=2)
    runnel.stop()
    topics = {topic.name: topic for topic in DataFolder(runnel.data_dir).topics()}
    assert topics["orders"].partitions == [0, 1]
    assert topics["orders"].size_bytes > 0
    with pytest.raises(BadDataFolder, match="no partitions"):
        DataFolder(str(tmp_path))
    with pytest.raises(BadDataFolder, match="no partitions"):
        DataFolder(str(tmp_path / "nowhere"))
    with pytest.raises(BadDataFolder, match=r"no topic payments; it has .*orders"):
        DataFolder(runnel.data_dir)._partitions_of("payments")


def test_the_folder_of_a_running_broker_is_refused(runnel):
    fill(runnel)
    with pytest.raises(BadDataFolder, match="a broker is running"), locked_data_folder(runnel.data_dir):
        pass
    runnel.stop()
    with locked_data_folder(runnel.data_dir) as folder:
        assert folder.topics()
        with pytest.raises(BadDataFolder), locked_data_folder(runnel.data_dir):
            pass


@pytest.mark.parametrize("cut_bytes", [1, 30, 70])
def test_a_torn_tail_ends_the_rows_at_the_last_whole_batch(runnel, cut_bytes):
    fill(runnel)
    expected = rows_of_broker(runnel)
    runnel.stop()
    (path,) = log_of(runnel).glob("*.log")
    os.truncate(path, path.stat().st_size - cut_bytes)
    found = scan(log_of(runnel), "orders", 0, 0)
    assert rows_in(found) == expected[:-1]
    assert found.torn_bytes > 0 or cut_bytes == 70
    assert found.damages == []


def test_a_tail_of_zeros_is_torn_as_well(runnel):
    fill(runnel)
    expected = rows_of_broker(runnel)
    runnel.stop()
    (path,) = log_of(runnel).glob("*.log")
    with path.open("ab") as file:
        file.write(bytes(100_000))
    found = scan(log_of(runnel), "orders", 0, 0)
    assert rows_in(found) == expected
    assert found.torn_bytes == 100_000


def test_a_flipped_byte_costs_its_batch_alone_and_is_reported(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        for number in range(5):
            client.send("orders", b"value number %d" % number)
    expected = rows_of_broker(runnel)
    runnel.stop()
    (path,) = log_of(runnel).glob("*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"value number 2")] ^= 1
    path.write_bytes(data)
    found = scan(log_of(runnel), "orders", 0, 0)
    assert [row[0] for row in rows_in(found)] == [0, 1, 3, 4]
    assert rows_in(found) == [row for row in expected if row[0] != 2]
    (reported,) = found.damages
    assert "offsets 2 to 2 are lost" in reported


def test_a_damaged_length_does_not_hide_the_batches_behind_it(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        for number in range(4):
            client.send("orders", b"value %d" % number)
    runnel.stop()
    (path,) = log_of(runnel).glob("*.log")
    data = bytearray(path.read_bytes())
    start = next(place for place, header, _ in _batches(path) if header.base_offset == 1)
    data[start + 8 : start + 12] = (2**30).to_bytes(4, "big")
    path.write_bytes(data)
    found = scan(log_of(runnel), "orders", 0, 0)
    assert [row[0] for row in rows_in(found)] == [0, 2, 3]
    assert len(found.damages) == 1


def _batches(path: Path):
    with path.open("rb") as file:
        yield from valid_batches(file.fileno(), 0, path.stat().st_size)


@pytest.mark.runnel({"log.segment.bytes": 1024 * 1024})
def test_an_earlier_file_that_is_cut_short_is_damage(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=1, settings={"segment.bytes": "1048576"})
        for _ in range(3):
            client.send("orders", bytes(700_000))
    runnel.stop()
    files = sorted(log_of(runnel).glob("*.log"))
    assert len(files) == 3
    os.truncate(files[1], 1000)
    found = scan(log_of(runnel), "orders", 0, 0)
    assert [row[0] for row in rows_in(found)] == [0, 2]
    assert len(found.damages) == 1 and found.torn_bytes == 0


def test_records_below_the_start_of_the_log_stay_deleted(runnel):
    from runnel.client.admin import Admin

    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        client.send_all("orders", [(None, b"%d" % number) for number in range(10)])
        client.run(lambda cluster: Admin(cluster).delete_records({TopicPartition("orders", 0): 4}))
    expected = rows_of_broker(runnel)
    runnel.stop()
    start = ExpectedContents(Path(runnel.data_dir)).log_start(TopicPartition("orders", 0))
    assert start == 4
    assert rows_in(scan(log_of(runnel), "orders", 0, start)) == expected


def test_a_compaction_cut_short_gives_each_row_once(runnel):
    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        client.send_all("orders", [(b"k", b"%d" % number) for number in range(5)])
    expected = rows_of_broker(runnel)
    runnel.stop()
    log = log_of(runnel)
    (path,) = log.glob("*.log")
    # Decided, written down, and nothing of it done yet.
    shutil.copy(path, f"{path}{CLEANED}")
    (log / COMPACTION_SWAP).write_bytes(encode_swap(Swap(0, [0])))
    path.write_bytes(b"")
    assert rows_in(scan(log, "orders", 0, 0)) == expected
    # As Kafka's cleaner leaves it: its new file beside those that it replaces.
    os.remove(log / COMPACTION_SWAP)
    os.rename(f"{path}{CLEANED}", f"{path}.swap")
    shutil.copy(f"{path}.swap", log / f"{3:020d}.log")
    assert rows_in(scan(log, "orders", 0, 0)) == expected


def test_offsets_of_groups_come_from_the_folder(runnel):
    from runnel.client.groups import Groups

    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
        places = {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 9}
        client.run(lambda cluster: Groups(cluster).commit("readers", places))
        later = {TopicPartition("orders", 0): 8}
        client.run(lambda cluster: Groups(cluster).commit("readers", later))
        client.run(lambda cluster: Groups(cluster).commit("others", places))
        client.run(lambda cluster: Groups(cluster).delete("others"))
    runnel.stop()
    groups = DataFolder(runnel.data_dir).group_offsets()
    assert groups.committed["readers"] == {**places, **later}
    assert not groups.committed.get("others")
    assert (groups.damages, groups.notes) == ([], [])


def test_spark_reads_the_same_rows(runnel, spark):
    fill(runnel, partitions=2)
    expected = rows_of_broker(runnel, 0) + rows_of_broker(runnel, 1)
    runnel.stop()
    with locked_data_folder(runnel.data_dir) as folder:
        scans = folder.scan(spark, "orders")
        frame = folder.read(spark, scans)
        rows = frame.orderBy("partition", "offset").collect()
    assert [(row.offset, row.key, row.value) for row in rows] == [
        (offset, key, value) for offset, _, key, value in expected
    ]
    assert sum(found.records for found in scans) == len(expected)
    (tombstone,) = [row for row in rows if row.key == b"gone"]
    assert tombstone.value is None
    assert [(header.key, bytes(header.value)) for header in tombstone.headers] == [("h", b"1")]
    assert tombstone.timestamp.timestamp() == 1.234
