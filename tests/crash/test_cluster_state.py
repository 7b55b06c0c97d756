"""What the tools for clusters read and compute: assignments, and decisions in a metadata log."""

from pathlib import Path

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    encode_metadata_record,
)
from tools.cluster.changes import spread
from tools.cluster.metadata_records import FOLDER, changes_since
from tools.cluster.view import ClusterState, PartitionState


def whole(*replicas: int) -> PartitionState:
    return PartitionState(replicas[0], 0, replicas, frozenset(replicas))


def test_replicas_are_spread_over_all_brokers() -> None:
    partitions = {("t", number): whole(1, 2, 3) for number in range(5)} | {("u", 0): whole(1)}
    assignment = spread(ClusterState(frozenset([1, 2, 3]), partitions), [5, 4, 3, 2, 1])
    assert [replicas[0] for _, replicas in sorted(assignment.items())] == [1, 2, 3, 4, 5, 1]
    assert assignment["t", 3] == [4, 5, 1]
    assert assignment["u", 0] == [1]


def test_a_cluster_is_unfinished_until_brokers_and_replicas_are_back() -> None:
    behind = PartitionState(1, 0, (1, 2), frozenset([1]))
    state = ClusterState(frozenset([1]), {("t", 0): whole(1, 2), ("t", 1): behind})
    assert state.unfinished([1, 2]).startswith("brokers [2] are not in the metadata; 1 partitions")
    assert ClusterState(frozenset([1, 2]), {("t", 0): whole(1, 2)}).unfinished([1, 2]) == ""
    leaderless = PartitionState(-1, 0, (1,), frozenset([1]))
    assert not leaderless.is_whole


def write_log(data: Path, *records: MetadataRecord, epoch: int = 4) -> None:
    folder = data / FOLDER
    folder.mkdir(parents=True)
    with (folder / f"{0:020}.log").open("wb") as file:
        for offset, record in enumerate(records):
            stored = Record(offset, 0, None, encode_metadata_record(record))
            file.write(build_batch([stored], base_offset=offset, leader_epoch=epoch))


def test_decisions_are_counted_from_an_offset_on(tmp_path) -> None:
    write_log(
        tmp_path,
        BrokerRegistrationChangeRecord(broker_id=1, fenced=1),
        NoOpRecord(),
        PartitionChangeRecord(partition_id=0, leader=2, isr=[2]),
        PartitionChangeRecord(partition_id=0, isr=[2, 3]),
        BrokerRegistrationChangeRecord(broker_id=3, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=3, fenced=-1),
    )
    everything = changes_since(tmp_path, 0)
    assert everything.fencings == [1, 3]
    assert (everything.elections, everything.in_sync_changes, everything.end_offset) == (1, 2, 6)
    assert everything.quorum_epochs == {4}
    later = changes_since(tmp_path, 3)
    assert (later.fencings, later.elections, later.in_sync_changes) == ([3], 0, 1)
