"""Partition reassignment: new replicas are added, and the others removed once all new ones are in sync.

start      replicas = target, then those to be removed; which are new and which leave is part of the state
progress   the leader adds followers to the ISR by AlterPartition
finish     with the AlterPartition that brings the last target replica into the ISR
cancel     the new replicas are removed again
"""

from collections.abc import Sequence

from runnel.controller.elections import existing_partition
from runnel.controller.image import MetadataImage
from runnel.controller.partition_change import Election, PartitionChange
from runnel.controller.placement import check_replicas
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.topic_policies import TopicPolicies
from runnel.controller.values import PartitionState, Topic
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import PARTITIONS_PER_REQUEST_MAX
from runnel.schemas.metadata import PartitionChangeRecord


def decide_reassignments(
    image: MetadataImage, settings: Settings, request: AlterPartitionReassignmentsRequest
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Start, replace or cancel the reassignment of each partition."""
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"A request can reassign at most {PARTITIONS_PER_REQUEST_MAX} partitions; split the request.",
        )
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    outcome = ControllerResult[AlterPartitionReassignmentsResponse]([], response)
    policies = TopicPolicies(image, settings)
    for topic in request.topics:
        topic_response = ReassignableTopicResponse(topic.name)
        response.responses.append(topic_response)
        for requested in topic.partitions:
            index, target = requested.partition_index, requested.replicas
            result = ReassignablePartitionResponse(index, error_message=None)
            topic_response.partitions.append(result)
            try:
                if target is None:
                    record = _cancel(image, policies, topic.name, index)
                else:
                    may_change = request.allow_replication_factor_change
                    record = _reassign(image, policies, topic.name, index, target, may_change)
            except ApiError as error:
                result.error_code, result.error_message = error.code, str(error)
            else:
                outcome.records += [] if record is None else [record]
    return outcome


def _reassign(
    image: MetadataImage,
    policies: TopicPolicies,
    name: str,
    index: int,
    target: Sequence[int],
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    topic, state = existing_partition(image, name, index)
    check_replicas(image, target)
    original = [broker for broker in state.replicas if broker not in state.adding]
    if not may_change_factor and len(target) != len(original):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(original)} to {len(target)}",
        )
    change = PartitionChange(image, state, policies.of(topic).min_isr)
    # Replicas that a replaced reassignment was adding may be all that is in sync: they leave at the end.
    change.removing = sorted(set(state.replicas).difference(target))
    change.adding = sorted(set(target).difference(original))
    change.replicas = [*target, *change.removing]
    return change.build(topic.id, index)


def _cancel(
    image: MetadataImage, policies: TopicPolicies, name: str, index: int
) -> PartitionChangeRecord | None:
    topic, state = existing_partition(image, name, index)
    if not state.adding and not state.removing:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    policy = policies.of(topic)
    change = PartitionChange(image, state, policy.min_isr)
    change.replicas = [broker for broker in state.replicas if broker not in state.adding]
    change.isr = [broker for broker in state.isr if broker not in state.adding]
    change.adding = change.removing = ()
    if state.isr and not change.isr:
        # The only replicas in sync are those that would be removed.
        if not policy.is_unclean:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {name}:{index} because it would require an "
                "unclean leader election.",
            )
        change.isr = change.replicas[:1]
    if policy.is_unclean:
        change.election = Election.UNCLEAN
    return change.build(topic.id, index)


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
