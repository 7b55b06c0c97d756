"""Requests of transactional and idempotent producers."""

from typing import Any

from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.messages.describe_transactions import DescribeTransactionsRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.list_transactions import ListTransactionsRequest
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from runnel.model.errors import ErrorCode
from runnel.security.acl import Operation, ResourceType
from runnel.wire import Request
from tools.differential.authorization.probe import (
    DENY,
    GROUPS,
    HERE,
    TOPICS,
    TRANSACTIONAL_IDS,
    Acl,
    Make,
    Probe,
    on_cluster,
    on_groups,
    on_topics,
    on_transactional_ids,
    same,
)
from tools.differential.comparison import Broker, BrokerPair

O = Operation  # noqa: E741 - shorter lines
T = ResourceType.TOPIC
TIMEOUT_MS = 600_000
UNKNOWN_ID = 987_654
"""A producer id that was never assigned: what is permitted fails because of it."""
NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS.code,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
}
ATTEMPTS_MAX = 100


def set_up_transactions(pair: BrokerPair) -> None:
    """An open transaction with a partition of a topic."""
    name = TRANSACTIONAL_IDS[0]
    pair.begin(FindCoordinatorRequest(name, 1), 3, "one").result()
    responses = _settled(pair, InitProducerIdRequest(name, TIMEOUT_MS), 4)
    owners = {
        broker.port: response for broker, response in zip((pair.ours, pair.theirs), responses, strict=True)
    }

    def adding(broker: Broker) -> AddPartitionsToTxnRequest:
        owner = owners[broker.port]
        return _added(name, owner.producer_id, HERE, epoch=owner.producer_epoch)

    added = pair.begin(adding, 3, "one").result()
    for response in added:
        (topic,) = response.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0, topic


def _settled(pair: BrokerPair, request: Request, version: int) -> tuple[Any, Any]:
    for _ in range(ATTEMPTS_MAX):
        responses = pair.begin(request, version, "one").result()
        if not any(response.error_code in NOT_YET for response in responses):
            break
        pair.settle()
    assert {response.error_code for response in responses} == {0}, responses
    return responses


def transaction_probes() -> list[Probe]:
    """All of them."""
    idempotent = same(InitProducerIdRequest(None, TIMEOUT_MS))
    dominated = {Acl(O.WRITE, T, HERE), Acl(O.WRITE, T, "*", DENY)}
    other = {Acl(O.WRITE, T, HERE), Acl(O.WRITE, T, "another", DENY)}
    partitions = (on_cluster(O.CLUSTER_ACTION),)
    return [
        Probe(22, "InitProducerId without an id", idempotent, (on_cluster(O.IDEMPOTENT_WRITE),)),
        Probe(
            22,
            "InitProducerId without an id, by a topic",
            idempotent,
            (on_topics(O.WRITE, HERE),),
            extra=(
                ("WRITE of a topic, denied on all", frozenset(dominated)),
                ("WRITE of a topic, denied on another", frozenset(other)),
                ("WRITE of all topics", frozenset({Acl(O.WRITE, T, "*")})),
            ),
        ),
        *(probe for name in TRANSACTIONAL_IDS for probe in _probes_of_producer(name)),
        Probe(24, "AddPartitionsToTxn of a node", _verified, partitions, range(4, 6)),
        Probe(27, "WriteTxnMarkers", _markers, (on_cluster(O.CLUSTER_ACTION),)),
        Probe(27, "WriteTxnMarkers by ALTER", _markers, (on_cluster(O.ALTER),)),
        Probe(
            65,
            "DescribeTransactions",
            same(DescribeTransactionsRequest(list(TRANSACTIONAL_IDS))),
            (on_transactional_ids(O.DESCRIBE), on_topics(O.DESCRIBE, HERE)),
            ignore="transaction_start_time_ms producer_id producer_epoch",
        ),
        Probe(
            66,
            "ListTransactions",
            same(ListTransactionsRequest()),
            (on_transactional_ids(O.DESCRIBE),),
        ),
    ]


def _probes_of_producer(name: str) -> list[Probe]:
    write, read = on_transactional_ids(O.WRITE, name), on_topics(O.READ)
    probes = [
        Probe(
            22,
            f"InitProducerId of {name}",
            same(InitProducerIdRequest(name, -5)),
            (write,),
        ),
        *(
            Probe(
                25,
                f"AddOffsetsToTxn of {name}, {group}",
                same(AddOffsetsToTxnRequest(name, UNKNOWN_ID, 0, group)),
                (write, on_groups(O.READ, group)),
            )
            for group in GROUPS
        ),
        Probe(26, f"EndTxn of {name}", same(EndTxnRequest(name, UNKNOWN_ID, 0, True)), (write,)),
        *(
            Probe(
                28,
                f"TxnOffsetCommit of {name}, {group}",
                _committed(name, group),
                (write, on_groups(O.READ, group), read),
                has_all=False,
            )
            for group in GROUPS
        ),
    ]
    adding = same(_added(name, UNKNOWN_ID, *TOPICS))
    internal = same(_added(name, UNKNOWN_ID, HERE, "__consumer_offsets"))
    return [
        *probes,
        Probe(24, f"AddPartitionsToTxn of {name}", adding, (write, on_topics(O.WRITE)), range(4)),
        Probe(
            24,
            f"AddPartitionsToTxn of {name}, an internal topic",
            internal,
            (write, on_topics(O.WRITE, HERE, "__consumer_offsets")),
            range(4),
        ),
    ]


def _added(name: str, producer_id: int, *topics: str, epoch: int = 0) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0]) for topic in topics],
    )


def _verified(broker: Broker, version: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(topic, [0]) for topic in TOPICS]
    transaction = AddPartitionsToTxnTransaction(TRANSACTIONAL_IDS[0], UNKNOWN_ID, 0, True, topics)
    return AddPartitionsToTxnRequest([transaction])


def _markers(broker: Broker, version: int) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(topic, [0]) for topic in TOPICS]
    return WriteTxnMarkersRequest([WritableTxnMarker(UNKNOWN_ID, 0, False, topics, 0)])


def _committed(name: str, group: str) -> Make:
    topics = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, 5)]) for topic in TOPICS]
    return same(TxnOffsetCommitRequest(name, group, UNKNOWN_ID, 0, topics=topics))
