"""Which APIs are served in slices, and along which arrays of their requests and responses."""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from runnel.batch.header import COMPRESSION_MASK, HEADER_BYTES, unpack_header
from runnel.broker.runtime.slices import Slicing
from runnel.model.limits import INSPECTED_RECORDS_MAX, PRODUCED_PER_SLICE

if TYPE_CHECKING:
    from runnel.broker.runtime.context import Context

CONFIGS_PER_SLICE = 50
"""Resources whose configs are described in one step: each has dozens, with synonyms and documentation."""

COMPRESSED_BATCHES_PER_STEP = 4
"""What a compressed batch holds is not known before it is decompressed."""


def _along(request: str, response: str, prepare: Callable[[Any], None] | None = None) -> Slicing:
    return Slicing(tuple(request.split(".")), tuple(response.split(".")), prepare)


def _name_topics_once(request: Any) -> None:
    # As the handler does within a slice, so that repeating a short name does not make a long response.
    request.topics = list({(topic.topic_id, topic.name): topic for topic in request.topics}.values())


def _in_pairs(array: str, *key: str) -> Callable[[Any], None]:
    """Keep two of all elements with the same key, next to each other: they are refused as duplicates."""
    key_of: Callable[[Any], Any] = attrgetter(*key) if key else str

    def prepare(request: Any) -> None:
        elements = getattr(request, array)
        counts = Counter(map(key_of, elements))
        first = {key_of(element): element for element in reversed(elements)}
        named = dict.fromkeys(map(key_of, elements))
        setattr(request, array, [first[name] for name in named for _ in range(min(counts[name], 2))])

    return prepare


def _offsets_in_pairs(request: Any) -> None:
    """Put two of each duplicate partition into a topic of their own, which fits a slice."""
    counts = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    duplicates: dict[tuple[str, int], Any] = {}
    for topic in request.topics:
        for part in topic.partitions:
            name = topic.name, part.partition_index
            if counts[name] > 1:
                duplicates[name] = copy(topic)
                duplicates[name].partitions = [part, part]
        topic.partitions = [
            part for part in topic.partitions if counts[topic.name, part.partition_index] == 1
        ]
    request.topics = [topic for topic in request.topics if topic.partitions] + list(duplicates.values())


def _describe_once(request: Any) -> None:
    """Describe each resource once, with all requested configs."""
    resources: dict[tuple[int, str], Any] = {}
    for resource in request.resources:
        same = resources.setdefault((resource.resource_type, resource.resource_name), resource)
        if same is not resource:
            if same.configuration_keys and resource.configuration_keys:
                same.configuration_keys += resource.configuration_keys
            else:
                # No keys mean all.
                same.configuration_keys = None
    request.resources = list(resources.values())


def _once(array: str) -> Callable[[Any], None]:
    """Keep each name of an array once: what is described may be much larger than its name."""
    return lambda request: setattr(request, array, list(dict.fromkeys(getattr(request, array))))


def _fetch_offsets_once(request: Any) -> None:
    """Fetch each offset once: the metadata of a commit may be a thousand times as long as its name."""
    groups: dict[Any, Any] = {}
    for group in request.groups:
        same = groups.setdefault((group.group_id, group.member_id, group.member_epoch), group)
        if same is not group:
            if same.topics is None or group.topics is None:
                # No topics mean all.
                same.topics = None
            else:
                same.topics += group.topics
    request.groups = list(groups.values())
    for holder in (request, *request.groups):
        holder.topics = _topics_once(holder.topics)


def _topics_once(topics: list[Any] | None) -> list[Any] | None:
    if topics is None:
        return None
    named: dict[Any, dict[int, None]] = {}
    first: dict[Any, Any] = {}
    for topic in topics:
        key = topic.name, getattr(topic, "topic_id", None)
        first.setdefault(key, topic)
        named.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
    for key, topic in first.items():
        topic.partition_indexes = list(named[key])
    return list(first.values())


def keep_records(request: Any, ctx: "Context") -> None:
    """Borrow the memory of the records beyond the turn, or copy them from memory that is shared."""
    if ctx.keeps_records:
        return
    ctx.keeps_records = True
    ctx.loan = ctx.session.loan
    if ctx.loan is None:
        copy_records(request)


def may_borrow(request: Any) -> bool:
    """Whether no slice waits for another one's commit, during which memory would be lent."""
    return request.transactional_id is None


def copy_records(request: Any) -> None:
    """Copy the records of a produce request."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else memoryview(bytes(data.records))


def _inspects_much(request: Any, ctx: "Context") -> bool:
    """Whether several batches are for topics that look at records, and have too many for one step."""
    cost = 0
    for topic in request.topic_data:
        name = topic.name or ctx.broker.topic_name(topic.topic_id) or ""
        for data in topic.partition_data:
            partition = ctx.broker.partition_at.get((name, data.index))
            if partition is None or not partition.log.config.inspects_records:
                continue
            if data.records is not None and len(data.records) >= HEADER_BYTES:
                header = unpack_header(data.records)
                cost += max(header[-1], 0)
                if header[5] & COMPRESSION_MASK:
                    cost += INSPECTED_RECORDS_MAX // COMPRESSED_BATCHES_PER_STEP
    return cost > INSPECTED_RECORDS_MAX


def _lists_offsets(request: Any, ctx: "Context") -> bool:
    """Whether several groups are fetched, and all offsets of one of them, of which there may be many."""
    return len(request.groups) > 1 and any(group.topics is None for group in request.groups)


DESCRIBED_PER_SLICE = 10
"""Groups or transactions, each of which may have thousands of members or partitions."""


def _few(array: str, into: str) -> Slicing:
    return replace(_along(array, into, _once(array)), elements=DESCRIBED_PER_SLICE)


_OFFSETS = _along("groups.topics.partition_indexes", "groups.topics.partitions", _fetch_offsets_once)

_RESOURCES_IN_PAIRS = _in_pairs("resources", "resource_type", "resource_name")

_PRODUCE = replace(
    _along("topic_data.partition_data", "responses.partition_responses"),
    elements=PRODUCED_PER_SLICE,
    is_pipelined=may_borrow,
    keep=keep_records,
    copy=copy_records,
    is_costly=_inspects_much,
)

SLICINGS: Mapping[int, tuple[Slicing, ...]] = {
    0: (_PRODUCE,),  # Produce
    2: (_along("topics.partitions", "topics.partitions", _offsets_in_pairs),),  # ListOffsets
    3: (_along("topics", "topics", _name_topics_once),),  # Metadata
    8: (_along("topics.partitions", "topics.partitions"),),  # OffsetCommit
    9: (  # OffsetFetch
        replace(_OFFSETS, is_costly=_lists_offsets),
        _along("topics.partition_indexes", "topics.partitions", _fetch_offsets_once),
    ),
    10: (_along("coordinator_keys", "coordinators"),),  # FindCoordinator
    13: (_along("members", "members"),),  # LeaveGroup
    15: (_few("groups", "groups"),),  # DescribeGroups
    19: (_along("topics", "topics", _in_pairs("topics", "name")),),  # CreateTopics
    20: (  # DeleteTopics
        _along("topics", "responses", _in_pairs("topics", "name", "topic_id")),
        _along("topic_names", "responses", _in_pairs("topic_names")),
    ),
    21: (_along("topics.partitions", "topics.partitions"),),  # DeleteRecords
    23: (_along("topics.partitions", "topics.partitions"),),  # OffsetForLeaderEpoch
    28: (_along("topics.partitions", "topics.partitions"),),  # TxnOffsetCommit
    # DescribeConfigs
    32: (replace(_along("resources", "results", _describe_once), elements=CONFIGS_PER_SLICE),),
    33: (_along("resources", "responses", _RESOURCES_IN_PAIRS),),  # AlterConfigs
    42: (_along("groups_names", "results"),),  # DeleteGroups
    43: (_along("topic_partitions.partitions", "replica_election_results.partition_result"),),  # ElectLeaders
    44: (_along("resources", "responses", _RESOURCES_IN_PAIRS),),  # IncrementalAlterConfigs
    45: (_along("topics.partitions", "responses.partitions"),),  # AlterPartitionReassignments
    46: (_along("topics.partition_indexes", "topics.partitions"),),  # ListPartitionReassignments
    47: (_along("topics.partitions", "topics.partitions"),),  # OffsetDelete
    49: (_along("entries", "entries"),),  # AlterClientQuotas
    50: (_along("users", "results", _in_pairs("users", "name")),),  # DescribeUserScramCredentials
    55: (_along("topics.partitions", "topics.partitions"),),  # DescribeQuorum
    65: (_few("transactional_ids", "transaction_states"),),  # DescribeTransactions
    69: (_few("group_ids", "groups"),),  # ConsumerGroupDescribe
}
