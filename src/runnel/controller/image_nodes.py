"""Replays of the records that are not about topics: nodes, features, configs, quotas, users, permissions."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from runnel.controller.values import (
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    DelegationToken,
    Endpoint,
    ScramCredential,
)
from runnel.schemas.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from runnel.security.acl import AccessControlEntry

if TYPE_CHECKING:
    from runnel.controller.image import MetadataImage

Key = TypeVar("Key")
Value = TypeVar("Value")

FENCE, UNFENCE = 1, -1


class BadMetadata(ValueError):
    """Metadata records that contradict each other or that this release does not support."""


def _broker_registered(image: "MetadataImage", record: RegisterBrokerRecord) -> None:
    cordoned = record.cordoned_log_dirs
    image.brokers[record.broker_id] = BrokerRegistration(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=bytes(record.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
        rack=record.rack,
        is_fenced=record.fenced,
        is_stopping=record.in_controlled_shutdown,
        directories=tuple(bytes(directory) for directory in record.log_dirs),
        cordoned=None if cordoned is None else tuple(bytes(directory) for directory in cordoned),
        offset=image.offset,
    )


def _broker_changed(image: "MetadataImage", record: BrokerRegistrationChangeRecord) -> None:
    broker = _registered(image, record.broker_id, record.broker_epoch, record)
    cordoned = record.cordoned_log_dirs
    image.brokers[broker.id] = replace(
        broker,
        is_fenced={FENCE: True, UNFENCE: False}.get(record.fenced, broker.is_fenced),
        is_stopping=broker.is_stopping or record.in_controlled_shutdown == 1,
        directories=tuple(bytes(directory) for directory in record.log_dirs) or broker.directories,
        cordoned=broker.cordoned if cordoned is None else tuple(bytes(directory) for directory in cordoned),
    )


def _broker_fenced(image: "MetadataImage", record: FenceBrokerRecord) -> None:
    broker = _registered(image, record.id, record.epoch, record)
    image.brokers[broker.id] = replace(broker, is_fenced=True)


def _broker_unfenced(image: "MetadataImage", record: UnfenceBrokerRecord) -> None:
    broker = _registered(image, record.id, record.epoch, record)
    image.brokers[broker.id] = replace(broker, is_fenced=False)


def _broker_unregistered(image: "MetadataImage", record: UnregisterBrokerRecord) -> None:
    del image.brokers[_registered(image, record.broker_id, record.broker_epoch, record).id]


def _registered(
    image: "MetadataImage", broker_id: int, epoch: int, record: MetadataRecord
) -> BrokerRegistration:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BadMetadata(f"{type(record).__name__} refers to broker {broker_id}, which is not registered")
    if broker.epoch != epoch:
        raise BadMetadata(
            f"{type(record).__name__} refers to epoch {epoch} of broker {broker_id}, not to {broker.epoch}"
        )
    return broker


def _controller_registered(image: "MetadataImage", record: RegisterControllerRecord) -> None:
    image.controllers[record.controller_id] = ControllerRegistration(
        id=record.controller_id,
        incarnation_id=bytes(record.incarnation_id),
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
        is_ready_for_zk_migration=record.zk_migration_ready,
    )


def _config_changed(image: "MetadataImage", record: ConfigRecord) -> None:
    resource = ConfigResource(record.resource_type, record.resource_name)
    configs = _changed(image.configs.get(resource), record.name, record.value)
    set_or_remove(image.configs, resource, configs)


def _feature_changed(image: "MetadataImage", record: FeatureLevelRecord) -> None:
    set_or_remove(image.features, record.name, record.feature_level)


def _quota_changed(image: "MetadataImage", record: ClientQuotaRecord) -> None:
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    value = None if record.remove else record.value
    set_or_remove(image.quotas, entity, _changed(image.quotas.get(entity), record.key, value))


def _credential_created(image: "MetadataImage", record: UserScramCredentialRecord) -> None:
    credential = ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
    mechanisms = _changed(image.credentials.get(record.name), record.mechanism, credential)
    set_or_remove(image.credentials, record.name, mechanisms)


def _credential_removed(image: "MetadataImage", record: RemoveUserScramCredentialRecord) -> None:
    mechanisms = _changed(image.credentials.get(record.name), record.mechanism, None)
    set_or_remove(image.credentials, record.name, mechanisms)


def _acl_created(image: "MetadataImage", record: AccessControlEntryRecord) -> None:
    acl_id = bytes(record.id)
    acl = image.acls[acl_id] = AccessControlEntry(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    image.acl_ids[acl] = acl_id


def _acl_removed(image: "MetadataImage", record: RemoveAccessControlEntryRecord) -> None:
    acl_id = bytes(record.id)
    acl = image.acls.pop(acl_id, None)
    if acl is None:
        raise BadMetadata(f"the unknown ACL {record.id.hex()} is removed")
    if image.acl_ids.get(acl) == acl_id:
        del image.acl_ids[acl]


def _token_changed(image: "MetadataImage", record: DelegationTokenRecord) -> None:
    image.tokens[record.token_id] = DelegationToken(
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def _token_removed(image: "MetadataImage", record: RemoveDelegationTokenRecord) -> None:
    image.tokens.pop(record.token_id, None)


def _producer_ids_allocated(image: "MetadataImage", record: ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id


def _cluster_id_set(image: "MetadataImage", record: ClusterRecord) -> None:
    image.cluster_id = record.cluster_id


def _nothing(image: "MetadataImage", record: MetadataRecord) -> None:
    """Only the offset advances."""


def _changed(values: dict[Key, Value] | None, key: Key, value: Value | None) -> dict[Key, Value]:
    """A changed copy: images that were copied from each other share the old one. None removes the key."""
    changed = dict(values or {})
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed


def set_or_remove(target: dict[Key, Value], key: Key, value: Value) -> None:
    """Store a value, or remove the key if it is empty or 0."""
    if value:
        target[key] = value
    else:
        target.pop(key, None)


NODE_REPLAYS: dict[type[MetadataRecord], Callable[["MetadataImage", Any], None]] = {
    RegisterBrokerRecord: _broker_registered,
    BrokerRegistrationChangeRecord: _broker_changed,
    FenceBrokerRecord: _broker_fenced,
    UnfenceBrokerRecord: _broker_unfenced,
    UnregisterBrokerRecord: _broker_unregistered,
    RegisterControllerRecord: _controller_registered,
    ConfigRecord: _config_changed,
    FeatureLevelRecord: _feature_changed,
    ClientQuotaRecord: _quota_changed,
    UserScramCredentialRecord: _credential_created,
    RemoveUserScramCredentialRecord: _credential_removed,
    AccessControlEntryRecord: _acl_created,
    RemoveAccessControlEntryRecord: _acl_removed,
    DelegationTokenRecord: _token_changed,
    RemoveDelegationTokenRecord: _token_removed,
    ProducerIdsRecord: _producer_ids_allocated,
    ClusterRecord: _cluster_id_set,
    BeginTransactionRecord: _nothing,
    EndTransactionRecord: _nothing,
    AbortTransactionRecord: _nothing,
    NoOpRecord: _nothing,
    ZkMigrationStateRecord: _nothing,
}
