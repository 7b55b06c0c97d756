"""CreateTopics, DeleteTopics and CreatePartitions. Each topic of a request succeeds or fails alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runnel.controller.config_rules import check_configs
from runnel.controller.image import MetadataImage
from runnel.controller.placement import assign_replicas, manual_assignment
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.controller.settings import Settings
from runnel.controller.snapshot import partition_record
from runnel.controller.topic_names import check_new_topic_name
from runnel.controller.values import PartitionState, Topic
from runnel.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from runnel.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID
from runnel.model.limits import PARTITIONS_PER_REQUEST_MAX
from runnel.schemas.metadata import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord

DescribeTopicConfigs = Callable[[dict[str, str]], list[CreatableTopicConfigs]]
"""The configs of a new topic as CreateTopics returns them, given its overrides."""

ChargeChange = Callable[[str, int], None]
"""Charges partitions of a topic that are created or deleted to a quota; raises ApiError to refuse that."""


def free_of_charge(topic: str, partitions: int) -> None:
    """The charge of a client without a quota."""


@dataclass(slots=True)
class Randomness:
    """The random inputs of topic creation: topic ids, and the broker at which placement starts."""

    topic_ids: Iterator[bytes]
    first_broker: int = 0


def decide_create_topics(
    image: MetadataImage,
    settings: Settings,
    request: CreateTopicsRequest,
    randomness: Randomness,
    describe_configs: DescribeTopicConfigs | None = None,
    charge: ChargeChange = free_of_charge,
) -> ControllerResult[CreateTopicsResponse]:
    """Create each valid topic; with `validate_only` only validate."""
    duplicates = duplicates_in(topic.name for topic in request.topics)
    too_large = _partitions_requested(settings, request) > PARTITIONS_PER_REQUEST_MAX
    # Topics of this request are not in the image yet, but their names are in use.
    taken: dict[str, str] = {}
    outcome = ControllerResult[CreateTopicsResponse]([], CreateTopicsResponse())
    for requested in {topic.name: topic for topic in request.topics}.values():
        try:
            if requested.name in duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if too_large:
                raise _too_many_partitions()
            result, records = _create(image, settings, requested, randomness, taken)
            charge(requested.name, result.num_partitions)
        except ApiError as error:
            # Returned from version 5 on, where null would mean that configs were not requested.
            outcome.response.topics.append(
                CreatableTopicResult(
                    requested.name, error_code=error.code, error_message=str(error), configs=[]
                )
            )
            continue
        if describe_configs:
            result.configs = describe_configs(_configs_of(requested))
        if request.validate_only:
            result.topic_id = NO_ID
        else:
            outcome.records += records
        outcome.response.topics.append(result)
    return outcome


def _create(
    image: MetadataImage,
    settings: Settings,
    requested: CreatableTopic,
    randomness: Randomness,
    taken: dict[str, str],
) -> tuple[CreatableTopicResult, list[MetadataRecord]]:
    check_new_topic_name(image, requested.name)
    form = requested.name.replace(".", "_")
    if form in taken:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{requested.name}' collides with topic: {taken[form]}"
        )
    empty = [config.name for config in requested.configs if config.value is None]
    if empty:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(empty)}"
        )
    configs = _configs_of(requested)
    check_configs(settings, ResourceType.TOPIC, configs)
    states = (
        _manual_assignments(image, requested)
        if requested.assignments
        else _automatic_assignment(image, settings, requested, randomness)
    )
    taken[form] = requested.name
    topic = Topic(requested.name, next(randomness.topic_ids))
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic.id)]
    records += [ConfigRecord(ResourceType.TOPIC, topic.name, name, value) for name, value in configs.items()]
    records += [partition_record(topic, index, state) for index, state in enumerate(states)]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=len(states),
        replication_factor=len(states[0].replicas),
        configs=None,
    )
    return result, records


def _configs_of(requested: CreatableTopic) -> dict[str, str]:
    return {config.name: config.value for config in requested.configs if config.value is not None}


def _automatic_assignment(
    image: MetadataImage, settings: Settings, requested: CreatableTopic, randomness: Randomness
) -> list[PartitionState]:
    count = settings.int("num.partitions") if requested.num_partitions == -1 else requested.num_partitions
    if count < 1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    replication_factor = requested.replication_factor
    if replication_factor == -1:
        replication_factor = settings.int("default.replication.factor")
    if replication_factor < 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    return assign_replicas(image, count, replication_factor, randomness.first_broker)


def _manual_assignments(image: MetadataImage, requested: CreatableTopic) -> list[PartitionState]:
    for name, value in (
        ("replication factor", requested.replication_factor),
        ("number of partitions", requested.num_partitions),
    ):
        if value != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but the {name} was not set to -1.",
            )
    by_index = {assignment.partition_index: assignment.broker_ids for assignment in requested.assignments}
    if sorted(by_index) != list(range(len(requested.assignments))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    replication_factor = len(by_index[0])
    return [_assigned_state(image, by_index[index], replication_factor) for index in range(len(by_index))]


def _assigned_state(image: MetadataImage, replicas: Sequence[int], replication_factor: int) -> PartitionState:
    state = manual_assignment(image, replicas)
    if len(replicas) != replication_factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s).",
        )
    return state


def _partitions_requested(settings: Settings, request: CreateTopicsRequest) -> int:
    by_default = settings.int("num.partitions")
    return sum(
        len(topic.assignments) or (by_default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in request.topics
    )


def _too_many_partitions() -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"A request can create at most {PARTITIONS_PER_REQUEST_MAX} partitions; split the request.",
    )


def decide_delete_topics(
    image: MetadataImage,
    settings: Settings,
    request: DeleteTopicsRequest,
    charge: ChargeChange = free_of_charge,
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete each existing topic, by name or by id."""
    requested = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    duplicates = duplicates_in((state.name, state.topic_id) for state in requested)
    outcome = ControllerResult[DeleteTopicsResponse]([], DeleteTopicsResponse())
    deleted: set[bytes] = set()
    for state in {(state.name, state.topic_id): state for state in requested}.values():
        result = DeletableTopicResult(state.name, state.topic_id)
        try:
            if (state.name, state.topic_id) in duplicates:
                kind = "name" if state.name is not None else "id"
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
            topic = _existing(image, state)
            if not settings.bool("delete.topic.enable"):
                raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            if topic.id in deleted:
                raise ApiError(ErrorCode.INVALID_REQUEST, "The topic is specified both by name and by id.")
            charge(topic.name, len(topic.partitions))
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
        else:
            result.name, result.topic_id = topic.name, topic.id
            deleted.add(topic.id)
            outcome.records.append(RemoveTopicRecord(topic.id))
        outcome.response.responses.append(result)
    return outcome


def _existing(image: MetadataImage, state: DeleteTopicState) -> Topic:
    if state.name is not None and state.topic_id != NO_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if state.name is not None:
        topic = image.topics.get(state.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{state.name}' does not exist.")
        return topic
    if state.topic_id == NO_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = image.topics_by_id.get(state.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic


def decide_create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    randomness: Randomness,
    charge: ChargeChange = free_of_charge,
) -> ControllerResult[CreatePartitionsResponse]:
    """Add partitions to topics; the number of partitions cannot be reduced."""
    duplicates = duplicates_in(topic.name for topic in request.topics)
    outcome = ControllerResult[CreatePartitionsResponse]([], CreatePartitionsResponse())
    room = PARTITIONS_PER_REQUEST_MAX
    for requested in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(requested.name)
        try:
            if requested.name in duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records = _add_partitions(image, requested, randomness, room)
            charge(requested.name, len(records))
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
        else:
            room -= len(records)
            outcome.records += [] if request.validate_only else records
        outcome.response.results.append(result)
    return outcome


def _add_partitions(
    image: MetadataImage, requested: CreatePartitionsTopic, randomness: Randomness, room: int
) -> list[MetadataRecord]:
    topic = image.topics.get(requested.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{requested.name}' does not exist.")
    current = len(topic.partitions)
    more = requested.count - current
    if more == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if more < 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {requested.name} currently has {current} partition(s); "
            f"{requested.count} would not be an increase.",
        )
    if more > room:
        raise _too_many_partitions()
    replication_factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        states = assign_replicas(image, more, replication_factor, randomness.first_broker + current)
    elif len(requested.assignments) != more:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(requested.assignments)} "
            "assignment(s) were specified.",
        )
    else:
        states = [
            _assigned_state(image, assignment.broker_ids, replication_factor)
            for assignment in requested.assignments
        ]
    return [partition_record(topic, current + index, state) for index, state in enumerate(states)]
