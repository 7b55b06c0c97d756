"""AlterPartition: leaders propose ISRs.

| answer                                         | the request                                               |
|------------------------------------------------|-----------------------------------------------------------|
| STALE_BROKER_EPOCH, at the top                 | is of an earlier registration                             |
| UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION   | is for a partition that does not exist                    |
| NOT_CONTROLLER                                 | has newer epochs: there must be another active controller |
| FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION    | has older epochs                                          |
| INVALID_REQUEST                                | is not of the leader, or proposes an impossible ISR       |
| INELIGIBLE_REPLICA                             | proposes a broker that is fenced, stopping, or restarted  |
| NEW_LEADER_ELECTED                             | was applied, and ended a reassignment and the leadership  |
"""

from runnel.controller.broker_heartbeats import registered_broker
from runnel.controller.image import MetadataImage, state_after
from runnel.controller.partition_change import RECOVERED, RECOVERING, Election, PartitionChange
from runnel.controller.settings import Settings
from runnel.controller.steps import PARTITIONS_PER_STEP, Steps
from runnel.controller.topic_policies import TopicPolicies
from runnel.controller.values import PartitionState, Topic
from runnel.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicResult,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import MetadataRecord, PartitionChangeRecord

ANY_EPOCH = -1
"""The broker epoch of a member of which the leader knows none."""


def alter_partitions(
    image: MetadataImage, settings: Settings, request: AlterPartitionRequest, api_version: int
) -> Steps[AlterPartitionResponse]:
    """Change the ISR of each partition whose leader proposes a valid one."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    response = AlterPartitionResponse()
    batch: list[MetadataRecord] = []
    policies = TopicPolicies(image, settings)
    seen: set[tuple[bytes, int]] = set()
    for requested in request.topics:
        result = TopicResult(bytes(requested.topic_id))
        response.topics.append(result)
        for wanted in requested.partitions:
            if len(seen) % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                image = yield batch
                batch, policies = [], TopicPolicies(image, settings)
            at = result.topic_id, wanted.partition_index
            if at in seen:
                # The first proposal has made the epoch of the second one obsolete.
                result.partitions.append(PartitionResult(at[1], ErrorCode.INVALID_UPDATE_VERSION.code))
                continue
            seen.add(at)
            members = _members(wanted, api_version)
            answer, record = _alter(image, policies, request.broker_id, at[0], wanted, members)
            result.partitions.append(answer)
            if record is not None:
                batch.append(record)
    if batch:
        yield batch
    return response


def _alter(
    image: MetadataImage,
    policies: TopicPolicies,
    broker_id: int,
    topic_id: bytes,
    wanted: PartitionData,
    members: list[BrokerState],
) -> tuple[PartitionResult, PartitionChangeRecord | None]:
    index = wanted.partition_index
    try:
        topic, state = _existing(image, topic_id, index)
        _check_epochs(broker_id, state, wanted)
        _check_isr(image, state, wanted.leader_recovery_state, members)
    except ApiError as error:
        return PartitionResult(index, error.code), None
    policy = policies.of(topic)
    change = PartitionChange(image, state, policy.min_isr)
    change.isr = [member.broker_id for member in members]
    change.recovery = wanted.leader_recovery_state
    if policy.is_unclean:
        change.election = Election.UNCLEAN
    record = change.build(topic.id, index)
    if record is None:
        return _result(index, state), None
    after = state_after(state, record)
    if after.leader != broker_id:
        return PartitionResult(index, ErrorCode.NEW_LEADER_ELECTED.code), record
    return _result(index, after), record


def _members(wanted: PartitionData, api_version: int) -> list[BrokerState]:
    if api_version >= 3:
        return wanted.new_isr_with_epochs
    return [BrokerState(broker_id, ANY_EPOCH) for broker_id in wanted.new_isr]


def _existing(image: MetadataImage, topic_id: bytes, index: int) -> tuple[Topic, PartitionState]:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id.hex()}")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
    return topic, topic.partitions[index]


def _check_epochs(broker_id: int, state: PartitionState, wanted: PartitionData) -> None:
    if wanted.leader_epoch > state.leader_epoch or wanted.partition_epoch > state.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "the leader knows of later changes than this controller")
    if wanted.leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {state.leader_epoch}")
    if broker_id != state.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the leader is {state.leader}")
    if wanted.partition_epoch < state.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {state.partition_epoch}")


def _check_isr(
    image: MetadataImage, state: PartitionState, recovery: int, members: list[BrokerState]
) -> None:
    ids = [member.broker_id for member in members]
    if len(set(ids)) < len(ids) or not set(ids).issubset(state.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{ids} are not replicas of the partition")
    if state.leader not in ids:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the leader is not in the proposed ISR")
    if recovery not in (RECOVERED, RECOVERING):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{recovery} is not a leader recovery state")
    if recovery == RECOVERING and (len(ids) > 1 or state.recovery == RECOVERED):
        raise ApiError(ErrorCode.INVALID_REQUEST, "only a leader that recovers alone can be recovering")
    for member in members:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active:
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} is not active")
        if member.broker_epoch not in (ANY_EPOCH, broker.epoch):
            # A follower that restarted may have lost what it had fetched (KIP-903).
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} has restarted")


def _result(index: int, state: PartitionState) -> PartitionResult:
    return PartitionResult(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.recovery,
        partition_epoch=state.partition_epoch,
    )
