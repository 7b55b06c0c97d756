"""The versions in which metadata records are written: those that all nodes of the cluster can read.

                        metadata.version    7   8   17   23   30
RegisterBroker                              1   2    3         4
Partition, PartitionChange                  0        1    2
BrokerRegistrationChange                    the lowest version that has the changed fields
all others                                  0
"""

from collections.abc import Callable, Iterable
from typing import Any

from runnel.controller.features import (
    CORDONED_LEVEL,
    DIRECTORIES_LEVEL,
    ELIGIBLE_REPLICAS_LEVEL,
    METADATA_LEVEL,
    METADATA_VERSION,
)
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    encode_metadata_record,
)

MIGRATION_LEVEL = 8
"""Registrations have a field for brokers that move off ZooKeeper."""


def record_version(record: MetadataRecord, level: int) -> int:
    """The version of a record at this level of metadata.version."""
    choose = _VERSIONS.get(type(record))
    return 0 if choose is None else choose(record, level)


def encode_records(records: Iterable[MetadataRecord], level: int) -> list[bytes]:
    """The values of records that are written at this level; 0 if no level is finalized yet.

    A record that changes the level counts for those after it.
    """
    level = level or METADATA_LEVEL
    values = []
    for record in records:
        values.append(encode_metadata_record(record, record_version(record, level)))
        if type(record) is FeatureLevelRecord and record.name == METADATA_VERSION:
            level = record.feature_level
    return values


def _partition(record: Any, level: int) -> int:
    if level >= ELIGIBLE_REPLICAS_LEVEL:
        return 2
    return 1 if level >= DIRECTORIES_LEVEL else 0


def _register_broker(record: Any, level: int) -> int:
    if level >= CORDONED_LEVEL:
        return 4
    if level >= DIRECTORIES_LEVEL:
        return 3
    return 2 if level >= MIGRATION_LEVEL else 1


def _registration_change(record: Any, level: int) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


_VERSIONS: dict[type[MetadataRecord], Callable[[Any, int], int]] = {
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition,
    RegisterBrokerRecord: _register_broker,
    BrokerRegistrationChangeRecord: _registration_change,
}
