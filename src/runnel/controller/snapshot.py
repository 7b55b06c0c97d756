"""The records of an image; replayed into an empty image they produce an equal one."""

from collections.abc import Iterator

from runnel.controller.image import MetadataImage
from runnel.controller.values import BrokerRegistration, PartitionState, Topic
from runnel.schemas.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """All records of the image, in an order that can be replayed."""
    if image.cluster_id:
        yield ClusterRecord(image.cluster_id)
    for name, level in image.features.items():
        yield FeatureLevelRecord(name, level)
    for broker in image.brokers.values():
        yield registration_record(broker)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id)
        for index, state in enumerate(topic.partitions):
            yield partition_record(topic, index, state)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    yield from _client_records(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)


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
    )


def _client_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for entity, values in image.quotas.items():
        for key, value in values.items():
            yield ClientQuotaRecord([EntityData(*part) for part in entity], key, value)
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
