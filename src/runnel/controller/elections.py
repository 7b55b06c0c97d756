"""Leader elections: ElectLeaders, and the periodic ones of the controller.

balance_leaders          returns leadership to the preferred replicas
elect_unclean_leaders    gives leaderless partitions any leader, where their topic allows that
"""

from collections.abc import Iterator
from itertools import islice

from runnel.controller.broker_changes import Reason, change_partitions
from runnel.controller.image import MetadataImage
from runnel.controller.partition_change import Election, PartitionChange
from runnel.controller.partition_index import PartitionSet, partitions_at, topic_of
from runnel.controller.settings import Settings
from runnel.controller.steps import PARTITIONS_PER_STEP, Steps
from runnel.controller.topic_policies import TopicPolicies
from runnel.controller.values import PartitionState, Topic
from runnel.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER
from runnel.schemas.metadata import MetadataRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1
Requested = Iterator[tuple[ReplicaElectionResult, int | None]]
"""The partitions to elect leaders of, each with the result of its topic; None for a topic without any."""

_SETTLED = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_ELECTIONS = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}


def balance_leaders(image: MetadataImage, settings: Settings) -> Steps[None]:
    """Elect the preferred leaders that are in sync."""
    reason = Reason(election=Election.PREFERRED)
    _, batch = yield from change_partitions(image, settings, reason, [lambda index: index.unbalanced], [])
    if batch:
        yield batch


def elect_unclean_leaders(image: MetadataImage, settings: Settings) -> Steps[None]:
    """Elect leaders of leaderless partitions, uncleanly where the topic allows it."""
    _, batch = yield from change_partitions(image, settings, Reason(), [lambda index: index.leaderless], [])
    if batch:
        yield batch


def elect_leaders(
    image: MetadataImage, settings: Settings, request: ElectLeadersRequest
) -> Steps[ElectLeadersResponse]:
    """Elect preferred leaders, or any leaders of partitions that have none.

    If all partitions are requested, those that need no election are omitted from the response.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    results: list[ReplicaElectionResult] = []
    is_all = request.topic_partitions is None
    requested = _all_in_need(image, election) if is_all else _requested(request)
    while some := list(islice(requested, PARTITIONS_PER_STEP)):
        policies = TopicPolicies(image, settings)
        records: list[MetadataRecord] = []
        for result, index in some:
            if not results or result is not results[-1]:
                results.append(result)
            if index is None:
                continue
            answer = PartitionResult(index, error_message=None)
            try:
                records.append(_elect(image, policies, result.topic, index, election))
            except ApiError as error:
                if is_all and error.error in _SETTLED:
                    # It was elected or deleted after the request began.
                    continue
                answer.error_code, answer.error_message = error.code, str(error)
            result.partition_result.append(answer)
        image = yield records
    return ElectLeadersResponse(replica_election_results=results)


def _requested(request: ElectLeadersRequest) -> Requested:
    for topic in request.topic_partitions or ():
        result = ReplicaElectionResult(topic.topic, [])
        if not topic.partitions:
            yield result, None
        yield from ((result, index) for index in topic.partitions)


def _all_in_need(image: MetadataImage, election: Election) -> Requested:
    """The partitions without a leader, and for preferred elections those with another one, by topic."""
    found: dict[str, PartitionSet] = {}
    index = image.index
    sets: list[PartitionSet] = [index.leaderless]
    if election is Election.PREFERRED:
        sets.append(index.unbalanced)
    for partitions in sets:
        for key, bits in partitions.items():
            of_topic = found.setdefault(image.topics_by_id[topic_of(key)].name, {})
            of_topic[key] = of_topic.get(key, 0) | bits
    for name in sorted(found):
        result = ReplicaElectionResult(name, [])
        for key in sorted(found[name]):
            yield from ((result, partition) for partition in partitions_at(key, found[name][key]))


def _elect(
    image: MetadataImage, policies: TopicPolicies, name: str, index: int, election: Election
) -> PartitionChangeRecord:
    topic, state = existing_partition(image, name, index)
    is_preferred = election is Election.PREFERRED
    if state.leader == (state.replicas[0] if is_preferred else state.leader) != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    change = PartitionChange(image, state, policies.of(topic).min_isr)
    change.election = election
    record = change.build(topic.id, index)
    if record is not None:
        return record
    if is_preferred:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    raise ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
    )


def existing_partition(image: MetadataImage, name: str, index: int) -> tuple[Topic, PartitionState]:
    """A partition by name. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, topic.partitions[index]
