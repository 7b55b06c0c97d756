"""The records of the metadata log, in Kafka's formats.

A record's value is three varints (frame version 1, record type, version) and then the record.
"""

from __future__ import annotations

from runnel.schemas.coordinator import UnknownRecord
from runnel.wire import (
    Buffer,
    Data,
    MalformedMessage,
    Struct,
    boolean,
    bytes_,
    decode,
    encoded,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from runnel.wire.primitives import long_unsigned_varint, varint


class MetadataRecord(Data):
    """A metadata record; `api_key` is its type."""


class BrokerEndpoint(Struct):
    """The address of a broker's listener."""

    name: string = ""
    host: string = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class BrokerFeature(Struct):
    """The levels of a feature that a broker supports."""

    name: string = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class RegisterBrokerRecord(MetadataRecord, api=0, versions="0-4", flexible="0+"):
    """A broker registered, or registered again as a new incarnation.

    v1 controlled shutdown · v2 left over from the move off ZooKeeper · v3 log directories · v4 cordoned ones
    """

    broker_id: int32 = 0
    is_migrating_zk_broker: boolean = field("2+")
    incarnation_id: uuid = field()
    broker_epoch: int64 = 0
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()
    rack: string | None = field()
    fenced: boolean = True
    in_controlled_shutdown: boolean = field("1+")
    log_dirs: list[uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field("4+", default=None, tag=1)


class UnregisterBrokerRecord(MetadataRecord, api=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: int32 = 0
    broker_epoch: int64 = 0


class TopicRecord(MetadataRecord, api=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: string = ""
    topic_id: uuid = field()


class PartitionRecord(MetadataRecord, api=3, versions="0-2", flexible="0+"):
    """A partition was created, or is part of a snapshot.

    v1 directories · v2 eligible leader replicas (KIP-966)
    """

    partition_id: int32 = -1
    topic_id: uuid = field()
    replicas: list[int32] = field()  # preferred leader first
    isr: list[int32] = field()
    removing_replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    leader: int32 = -1  # -1 for none
    leader_recovery_state: int8 = field(tag=0)  # 1 after an unclean election
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1  # bumped by every change of the partition
    directories: list[uuid] = field("1+")  # in the order of `replicas`
    eligible_leader_replicas: list[int32] | None = field("2+", default=None, tag=1)
    last_known_elr: list[int32] | None = field("2+", default=None, tag=2)


class ConfigRecord(MetadataRecord, api=4, versions="0", flexible="0+"):
    """A config of a topic, broker, group or client metrics subscription was set or removed."""

    resource_type: int8 = 0  # 2 topic, 4 broker, 16 client metrics, 32 group
    resource_name: string = ""
    name: string = ""
    value: string | None = field()  # null removes the config


class PartitionChangeRecord(MetadataRecord, api=5, versions="0-2", flexible="0+"):
    """A partition changed; omitted fields are unchanged.

    v1 directories · v2 eligible leader replicas (KIP-966)
    """

    partition_id: int32 = -1
    topic_id: uuid = field()
    isr: list[int32] | None = field(default=None, tag=0)
    leader: int32 = field(default=-2, tag=1)  # -1 for none, -2 for no change
    replicas: list[int32] | None = field(default=None, tag=2)
    removing_replicas: list[int32] | None = field(default=None, tag=3)
    adding_replicas: list[int32] | None = field(default=None, tag=4)
    leader_recovery_state: int8 = field(default=-1, tag=5)  # -1 for no change
    directories: list[uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[int32] | None = field("2+", default=None, tag=6)
    last_known_elr: list[int32] | None = field("2+", default=None, tag=7)


class FenceBrokerRecord(MetadataRecord, api=7, versions="0", flexible="0+"):
    """A broker was fenced; superseded by BrokerRegistrationChangeRecord."""

    id: int32 = 0
    epoch: int64 = 0


class UnfenceBrokerRecord(MetadataRecord, api=8, versions="0", flexible="0+"):
    """A broker was unfenced; superseded by BrokerRegistrationChangeRecord."""

    id: int32 = 0
    epoch: int64 = 0


class RemoveTopicRecord(MetadataRecord, api=9, versions="0", flexible="0+"):
    """A topic was deleted."""

    topic_id: uuid = field()


class DelegationTokenRecord(MetadataRecord, api=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed."""

    owner: string = ""
    requester: string = ""
    renewers: list[string] = field()
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: string = ""


class UserScramCredentialRecord(MetadataRecord, api=11, versions="0", flexible="0+"):
    """A SCRAM credential of a user."""

    name: string = ""
    mechanism: int8 = 0
    salt: bytes_ = field()
    stored_key: bytes_ = field()
    server_key: bytes_ = field()
    iterations: int32 = 0


class FeatureLevelRecord(MetadataRecord, api=12, versions="0", flexible="0+"):
    """The finalized level of a feature."""

    name: string = ""
    feature_level: int16 = 0


class EntityData(Struct):
    """One component of a quota entity: a user, a client id or an IP address."""

    entity_type: string = ""
    entity_name: string | None = field()  # null is the default of its type


class ClientQuotaRecord(MetadataRecord, api=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[EntityData] = field()
    key: string = ""
    value: float64 = 0.0
    remove: boolean = False


class ProducerIdsRecord(MetadataRecord, api=15, versions="0", flexible="0+"):
    """A block of producer ids was allocated to a broker."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0  # the first id of the next block


class BrokerRegistrationChangeRecord(MetadataRecord, api=17, versions="0-3", flexible="0+"):
    """A registered broker was fenced or unfenced, entered controlled shutdown, or changed its directories."""

    broker_id: int32 = 0
    broker_epoch: int64 = 0
    fenced: int8 = field(tag=0)  # 1 fenced, -1 unfenced, 0 no change
    in_controlled_shutdown: int8 = field("1+", tag=1)  # 1 yes, 0 no change
    log_dirs: list[uuid] = field("2+", tag=2)  # empty for no change
    cordoned_log_dirs: list[uuid] | None = field("3+", default=None, tag=3)  # null for no change


class AccessControlEntryRecord(MetadataRecord, api=18, versions="0", flexible="0+"):
    """An ACL was created."""

    id: uuid = field()
    resource_type: int8 = 0
    resource_name: string = ""
    pattern_type: int8 = 0
    principal: string = ""
    host: string = ""
    operation: int8 = 0
    permission_type: int8 = 0


class RemoveAccessControlEntryRecord(MetadataRecord, api=19, versions="0", flexible="0+"):
    """An ACL was deleted."""

    id: uuid = field()


class NoOpRecord(MetadataRecord, api=20, versions="0", flexible="0+"):
    """No change; advances the log."""


class ZkMigrationStateRecord(MetadataRecord, api=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper; only in the logs of clusters that were migrated."""

    zk_migration_state: int8 = 0


class RemoveUserScramCredentialRecord(MetadataRecord, api=22, versions="0", flexible="0+"):
    """A SCRAM credential was deleted."""

    name: string = ""
    mechanism: int8 = 0


class BeginTransactionRecord(MetadataRecord, api=23, versions="0", flexible="0+"):
    """Begins a transaction: the records up to its end take effect together or not at all."""

    name: string | None = field(default=None, tag=0)


class EndTransactionRecord(MetadataRecord, api=24, versions="0", flexible="0+"):
    """Ends a transaction: its records take effect."""


class AbortTransactionRecord(MetadataRecord, api=25, versions="0", flexible="0+"):
    """Aborts a transaction: its records are discarded."""

    reason: string | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(MetadataRecord, api=26, versions="0", flexible="0+"):
    """A delegation token was deleted."""

    token_id: string = ""


class ControllerEndpoint(Struct):
    """The address of a controller's listener."""

    name: string = ""
    host: string = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class ControllerFeature(Struct):
    """The levels of a feature that a controller supports."""

    name: string = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class RegisterControllerRecord(MetadataRecord, api=27, versions="0", flexible="0+"):
    """A controller registered, or registered again as a new incarnation."""

    controller_id: int32 = 0
    incarnation_id: uuid = field()
    zk_migration_ready: boolean = False
    end_points: list[ControllerEndpoint] = field()
    features: list[ControllerFeature] = field()


class ClearElrRecord(MetadataRecord, api=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic were cleared."""

    topic_name: string = ""  # empty for all topics


class ClusterRecord(MetadataRecord, api=10000, versions="0", flexible="0+"):
    """The id of the cluster. Specific to Runnel: Kafka stores the id outside the log."""

    cluster_id: string = ""


class SnapshotRecord(MetadataRecord, api=10001, versions="0", flexible="0+"):
    """Begins a snapshot. Specific to Runnel: Kafka stores snapshots outside the log."""

    time_ms: int64 = 0


_FRAME_VERSION = 1

METADATA_RECORDS: dict[int, type[MetadataRecord]] = {
    record.api_key: record for record in MetadataRecord.__subclasses__()
}


def encode_metadata_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Encode a record's value, in its newest version by default."""
    version = record.versions[-1] if version is None else version
    head = varint(_FRAME_VERSION) + varint(record.api_key) + varint(version)
    return head + encoded(record, version)


def decode_metadata_record(value: Buffer) -> MetadataRecord | UnknownRecord:
    """Decode a record; UnknownRecord for unknown types and versions, MalformedMessage if it is corrupt."""
    # A copy, because decoded fields are views and would keep the whole batch in memory.
    value = bytes(value)
    if len(value) >= 3 and value[0] == _FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        # The common case, optimized because startup reads tens of thousands of records.
        frame_version, kind, version, position = value[0], value[1], value[2], 3
    else:
        (frame_version, kind, version), position = _read_varints(value, 3)
    if frame_version != _FRAME_VERSION:
        raise MalformedMessage(f"unsupported frame version {frame_version} of a metadata record")
    if kind not in METADATA_RECORDS:
        return UnknownRecord(kind, None)
    if version not in METADATA_RECORDS[kind].versions:
        return UnknownRecord(kind, version)
    return decode(METADATA_RECORDS[kind], version, value, position)


def _read_varints(value: bytes, count: int) -> tuple[list[int], int]:
    view, position, values = memoryview(value), 0, []
    try:
        for _ in range(count):
            number, position = long_unsigned_varint(view, position)
            values.append(number)
    except IndexError as error:
        raise MalformedMessage("a metadata record is too short for its header") from error
    return values, position
