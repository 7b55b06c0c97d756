"""Which APIs are served in slices, and along which arrays of their requests and responses."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.batch.header import COMPRESSION_MASK, HEADER_BYTES, unpack_header
from runnel.broker.runtime.slices import Slicing
from runnel.model.limits import INSPECTED_RECORDS_MAX

if TYPE_CHECKING:
    from runnel.broker.runtime.context import Context

COMPRESSED_BATCHES_PER_STEP = 4
"""What a compressed batch holds is not known before it is decompressed."""


def _along(request: str, response: str, prepare: Callable[[Any], None] = lambda request: None) -> Slicing:
    return Slicing(tuple(request.split(".")), tuple(response.split(".")), prepare)


def _name_topics_once(request: Any) -> None:
    # As the handler does within a slice, so that repeating a short name does not make a long response.
    request.topics = list({(topic.topic_id, topic.name): topic for topic in request.topics}.values())


def _once(array: str) -> Callable[[Any], None]:
    """Keep each name of an array once: what is described may be much larger than its name."""
    return lambda request: setattr(request, array, list(dict.fromkeys(getattr(request, array))))


def _keep_records(request: Any) -> None:
    """Copy the records: the memory of the frame is reused after the first slice."""
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


_OFFSETS = _along("groups.topics.partition_indexes", "groups.topics.partitions")

_PRODUCE = _along("topic_data.partition_data", "responses.partition_responses", _keep_records)

SLICINGS: Mapping[int, tuple[Slicing, ...]] = {
    0: (replace(_PRODUCE, is_costly=_inspects_much),),  # Produce
    2: (_along("topics.partitions", "topics.partitions"),),  # ListOffsets
    3: (_along("topics", "topics", _name_topics_once),),  # Metadata
    8: (_along("topics.partitions", "topics.partitions"),),  # OffsetCommit
    9: (  # OffsetFetch
        replace(_OFFSETS, is_costly=_lists_offsets),
        _along("topics.partition_indexes", "topics.partitions"),
    ),
    10: (_along("coordinator_keys", "coordinators"),),  # FindCoordinator
    13: (_along("members", "members"),),  # LeaveGroup
    15: (_few("groups", "groups"),),  # DescribeGroups
    20: (_along("topics", "responses"), _along("topic_names", "responses")),  # DeleteTopics
    21: (_along("topics.partitions", "topics.partitions"),),  # DeleteRecords
    23: (_along("topics.partitions", "topics.partitions"),),  # OffsetForLeaderEpoch
    24: (  # AddPartitionsToTxn
        _along("transactions.topics.partitions", "results_by_transaction.topic_results.results_by_partition"),
        _along("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
    ),
    # WriteTxnMarkers: a marker is appended to each partition's log.
    27: (replace(_along("markers.topics.partition_indexes", "markers.topics.partitions"), elements=100),),
    28: (_along("topics.partitions", "topics.partitions"),),  # TxnOffsetCommit
    30: (_along("creations", "results"),),  # CreateAcls
    31: (_along("filters", "filter_results"),),  # DeleteAcls
    32: (_along("resources", "results"),),  # DescribeConfigs
    33: (_along("resources", "responses"),),  # AlterConfigs
    42: (_along("groups_names", "results"),),  # DeleteGroups
    43: (_along("topic_partitions.partitions", "replica_election_results.partition_result"),),  # ElectLeaders
    44: (_along("resources", "responses"),),  # IncrementalAlterConfigs
    45: (_along("topics.partitions", "responses.partitions"),),  # AlterPartitionReassignments
    46: (_along("topics.partition_indexes", "topics.partitions"),),  # ListPartitionReassignments
    47: (_along("topics.partitions", "topics.partitions"),),  # OffsetDelete
    49: (_along("entries", "entries"),),  # AlterClientQuotas
    50: (_along("users", "results"),),  # DescribeUserScramCredentials
    55: (_along("topics.partitions", "topics.partitions"),),  # DescribeQuorum
    65: (_few("transactional_ids", "transaction_states"),),  # DescribeTransactions
    69: (_few("group_ids", "groups"),),  # ConsumerGroupDescribe
}
