"""Records are written in versions that every node of the cluster can read."""

import pytest

from runnel.controller.features import METADATA_VERSION, is_way_down
from runnel.controller.record_versions import encode_records, record_version
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
)

DIRECTORY = b"d" * 16


@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (PartitionChangeRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (TopicRecord(), {7: 0, 30: 0}),
        (BrokerRegistrationChangeRecord(fenced=1), {7: 0, 30: 0}),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), {7: 1, 30: 1}),
        (BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), {17: 2, 30: 2}),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), {30: 3}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_versions_by_level(record: MetadataRecord, versions: dict[int, int]) -> None:
    assert {level: record_version(record, level) for level in versions} == versions


def test_a_change_of_the_level_counts_for_the_records_after_it() -> None:
    partition = PartitionRecord(0, DIRECTORY, [1], [1], directories=[DIRECTORY])
    values = encode_records([partition, FeatureLevelRecord(METADATA_VERSION, 30), partition], 16)
    assert [value[2] for value in values] == [0, 0, 2]
    assert decode_metadata_record(values[2]) == partition
    assert encode_records([partition], 0)[0][2] == 2, "without a level, the newest one is about to be set"


@pytest.mark.parametrize(
    ("present", "level", "is_possible"),
    [(29, 23, True), (30, 29, False), (24, 23, True), (23, 22, False), (10, 8, True), (8, 7, False)],
)
def test_the_way_down_ends_where_records_changed(present: int, level: int, is_possible: bool) -> None:
    assert is_way_down(present, level) == is_possible
