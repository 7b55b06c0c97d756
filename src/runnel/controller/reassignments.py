"""Partition reassignment and leader election."""

from collections.abc import Sequence

from runnel.controller.image import MetadataImage
from runnel.controller.placement import check_replicas, directory_of
from runnel.controller.result import ControllerResult
from runnel.controller.values import PartitionState, Topic
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from runnel.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import MetadataRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1


def decide_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Start, change or cancel the reassignment of each partition."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    outcome = ControllerResult[AlterPartitionReassignmentsResponse]([], response)
    for topic in request.topics:
        topic_response = ReassignableTopicResponse(topic.name)
        for requested in topic.partitions:
            partition_response = ReassignablePartitionResponse(requested.partition_index, error_message=None)
            try:
                outcome.records += _reassign(image, request, topic.name, requested)
            except ApiError as error:
                partition_response.error_code, partition_response.error_message = error.code, str(error)
            topic_response.partitions.append(partition_response)
        response.responses.append(topic_response)
    return outcome


def _reassign(
    image: MetadataImage,
    request: AlterPartitionReassignmentsRequest,
    name: str,
    requested: ReassignablePartition,
) -> list[MetadataRecord]:
    topic, state = _existing(image, name, requested.partition_index)
    if requested.replicas is None:
        return _cancel(topic, requested.partition_index, state)
    check_replicas(image, requested.replicas)
    current = [node_id for node_id in state.replicas if node_id not in state.adding]
    if not request.allow_replication_factor_change and len(requested.replicas) != len(current):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(requested.replicas)}",
        )
    target = tuple(requested.replicas)
    if target == state.replicas and not state.adding and not state.removing:
        return []
    adding = [node_id for node_id in target if node_id not in current]
    removing = [node_id for node_id in current if node_id not in target]
    if not adding and not removing:
        return [_change(image, topic, requested.partition_index, target)]
    replicas = [*target, *removing]
    return [_change(image, topic, requested.partition_index, replicas, adding, removing)]


def _cancel(topic: Topic, index: int, state: PartitionState) -> list[MetadataRecord]:
    if not state.adding and not state.removing:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    kept = [
        (node_id, directory)
        for node_id, directory in zip(state.replicas, state.directories, strict=True)
        if node_id not in state.adding
    ]
    return [
        PartitionChangeRecord(
            partition_id=index,
            topic_id=topic.id,
            replicas=[node_id for node_id, _ in kept],
            isr=[node_id for node_id in state.isr if node_id not in state.adding],
            adding_replicas=[],
            removing_replicas=[],
            directories=[directory for _, directory in kept],
        )
    ]


def _change(
    image: MetadataImage,
    topic: Topic,
    index: int,
    replicas: Sequence[int],
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> PartitionChangeRecord:
    state = topic.partitions[index]
    directories = dict(zip(state.replicas, state.directories, strict=True))
    # A replica that was being added may already be in the ISR, and leaves it if it is not in the new target.
    in_sync = [node for node in state.isr if node in replicas]
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.id,
        isr=None if len(in_sync) == len(state.isr) else in_sync,
        replicas=list(replicas),
        adding_replicas=list(adding),
        removing_replicas=list(removing),
        directories=[directories.get(node) or directory_of(image.brokers[node]) for node in replicas],
    )


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The ongoing reassignments, of all topics or of the requested ones."""
    requested: list[tuple[Topic, Sequence[int]]]
    if request.topics is None:
        requested = [(topic, range(len(topic.partitions))) for topic in image.topics.values()]
    else:
        requested = [
            (image.topics[topic.name], topic.partition_indexes)
            for topic in request.topics
            if topic.name in image.topics
        ]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic, indexes in requested:
        moving = [
            _ongoing(index, topic.partitions[index])
            for index in indexes
            if 0 <= index < len(topic.partitions)
            and (topic.partitions[index].adding or topic.partitions[index].removing)
        ]
        if moving:
            response.topics.append(OngoingTopicReassignment(topic.name, moving))
    return response


def _ongoing(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(index, list(state.replicas), list(state.adding), list(state.removing))


def decide_elections(
    image: MetadataImage, request: ElectLeadersRequest
) -> ControllerResult[ElectLeadersResponse]:
    """Elect preferred leaders. An unclean election never has a candidate: a single replica is always in sync.

    If all partitions are requested, those that need no election are omitted from the response.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    requested: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        requested = [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    else:
        requested = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    outcome = ControllerResult[ElectLeadersResponse]([], ElectLeadersResponse())
    for name, indexes in requested:
        results: list[PartitionResult] = []
        for index in indexes:
            result = PartitionResult(index, error_message=None)
            try:
                outcome.records.append(_elect(image, name, index, request.election_type))
            except ApiError as error:
                if request.topic_partitions is None and error.error is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        if results or request.topic_partitions is not None:
            outcome.response.replica_election_results.append(ReplicaElectionResult(name, results))
    return outcome


def _elect(image: MetadataImage, name: str, index: int, election_type: int) -> PartitionChangeRecord:
    topic, state = _existing(image, name, index)
    live = {broker.id for broker in image.live_brokers()}
    if election_type == PREFERRED:
        if state.leader == state.replicas[0]:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        if state.replicas[0] not in state.isr or state.replicas[0] not in live:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "The preferred leader was not available.",
            )
        return PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=state.replicas[0])
    if state.leader in live:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    raise ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
    )


def _existing(image: MetadataImage, name: str, index: int) -> tuple[Topic, PartitionState]:
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, topic.partitions[index]
