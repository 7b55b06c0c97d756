"""The records of an image; replayed into an empty image they produce an equal one."""

from collections.abc import Iterator

from runnel.controller.features import METADATA_VERSION
from runnel.controller.image import MetadataImage
from runnel.controller.values import BrokerRegistration, ControllerRegistration, PartitionState, Topic
from runnel.schemas.metadata import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """All records of the image, in an order that can be replayed: that of Kafka's snapshots."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name, image.features[name])
    for broker in image.brokers.values():
        yield registration_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id)
        for index, state in enumerate(topic.partitions):
            yield partition_record(topic, index, state)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    yield from _client_records(image)


def partition_record(topic: Topic, index: int, state: PartitionState) -> PartitionRecord:
    """The record of a partition's current state."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing),
        adding_replicas=list(state.adding),
        leader=state.leader,
        leader_recovery_state=state.recovery,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        eligible_leader_replicas=list(state.eligible) or None,
        last_known_elr=list(state.last_known_eligible) or None,
    )


def registration_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    """The record of a broker's registration."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in broker.endpoints],
        features=[BrokerFeature(*feature) for feature in broker.features],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_stopping,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned is None else list(broker.cordoned),
    )


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """The record of a controller's registration."""
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_ready_for_zk_migration,
        end_points=[
            ControllerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in controller.endpoints
        ],
        features=[ControllerFeature(*feature) for feature in controller.features],
    )


def _client_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for entity, values in image.quotas.items():
        for key, value in values.items():
            yield ClientQuotaRecord([EntityData(*part) for part in entity], key, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
    for user, mechanisms in image.credentials.items():
        for mechanism, credential in mechanisms.items():
            yield UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
    for token_id, token in image.tokens.items():
        yield DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp,
            max_timestamp=token.max_timestamp,
            expiration_timestamp=token.expiration_timestamp,
            token_id=token_id,
        )
