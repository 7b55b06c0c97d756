"""AssignReplicasToDirs: brokers report the log directories of their replicas (KIP-858)."""

from runnel.controller.broker_heartbeats import registered_broker
from runnel.controller.features import DIRECTORIES_LEVEL
from runnel.controller.image import MetadataImage
from runnel.controller.partition_change import Election, PartitionChange
from runnel.controller.settings import Settings
from runnel.controller.steps import PARTITIONS_PER_STEP, Steps
from runnel.controller.topic_policies import TopicPolicies
from runnel.controller.values import LOST_DIRECTORY
from runnel.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import MetadataRecord


def assign_replicas_to_dirs(
    image: MetadataImage, settings: Settings, request: AssignReplicasToDirsRequest
) -> Steps[AssignReplicasToDirsResponse]:
    """Record the directory of each replica. Replicas in a directory that failed leave their ISRs.

    Those in the lost directory are damaged, and leave the ELRs as well.
    """
    if image.metadata_level < DIRECTORIES_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    registered_broker(image, request.broker_id, request.broker_epoch)
    response = AssignReplicasToDirsResponse()
    batch: list[MetadataRecord] = []
    policies = TopicPolicies(image, settings)
    count = 0
    for directory in request.directories:
        directory_result = DirectoryResult(directory.id)
        response.directories.append(directory_result)
        for topic in directory.topics:
            topic_result = TopicResult(topic.topic_id)
            directory_result.topics.append(topic_result)
            for partition in topic.partitions:
                index, result = partition.partition_index, PartitionResult(partition.partition_index)
                topic_result.partitions.append(result)
                try:
                    batch += _assign(image, policies, request.broker_id, topic.topic_id, index, directory.id)
                except ApiError as error:
                    result.error_code = error.code
                count += 1
                if count % PARTITIONS_PER_STEP == 0:
                    image = yield batch
                    batch, policies = [], TopicPolicies(image, settings)
                    # It may have been removed meanwhile.
                    registered_broker(image, request.broker_id, request.broker_epoch)
    if batch:
        yield batch
    return response


def _assign(
    image: MetadataImage,
    policies: TopicPolicies,
    broker_id: int,
    topic_id: bytes,
    index: int,
    directory: bytes,
) -> list[MetadataRecord]:
    topic = image.topics_by_id.get(bytes(topic_id))
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
    state = topic.partitions[index]
    if broker_id not in state.replicas:
        # It was reassigned meanwhile: the broker does not retry (KAFKA-16886).
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{broker_id} is not a replica")
    policy = policies.of(topic)
    broker = image.brokers[broker_id]
    change = PartitionChange(image, state, policy.min_isr)
    change.directories[broker_id] = bytes(directory)
    if policy.is_unclean:
        change.election = Election.UNCLEAN
    if not broker.has_online(bytes(directory)):
        change.isr = [member for member in state.isr if member != broker_id]
    if bytes(directory) == LOST_DIRECTORY:
        # Its records are damaged: it is no candidate, and does not become one by returning.
        change.lost = change.damaged = broker_id
    record = change.build(topic.id, index)
    return [] if record is None else [record]
