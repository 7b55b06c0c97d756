"""Verification of transactions with a coordinator on another broker: AddPartitionsToTxn, batched (KIP-890).

The leader of a data partition, or the group coordinator, requests it before it appends the first batch of a
transaction. Depending on the client's version the partition must have been added before, or is added now.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.broker.runtime.node_queues import NodeQueues
from runnel.broker.runtime.promise import Promise
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.peers import PeerUnsupported

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

Errors = dict[TopicPartition, ErrorCode]

TRANSACTIONS_PER_REQUEST = 500
"""Number of transactions in one request."""


@dataclass(slots=True)
class _Verification:
    """A transaction and the partitions that one request is about to write to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    adds: bool
    answer: Promise[Errors]

    def refuse(self, error: ErrorCode) -> None:
        self.answer.resolve(dict.fromkeys(self.partitions, error))

    def joins(self, other: "_Verification") -> bool:
        """Can both be one transaction of a request?"""
        return (self.producer_id, self.producer_epoch, self.adds) == (
            other.producer_id,
            other.producer_epoch,
            other.adds,
        )


class Verifications(NodeQueues[_Verification]):
    """The verifications that wait for transaction coordinators on other brokers."""

    purpose = "txn"

    def __init__(self, broker: "Broker", coordinator_of: Callable[[str], int]) -> None:
        super().__init__(broker)
        self._coordinator_of = coordinator_of

    def verify(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        adds: bool,
    ) -> Promise[Errors]:
        """An error code for each partition; NETWORK_EXCEPTION if there is no response."""
        answer: Promise[Errors] = Promise()
        verification = _Verification(transactional_id, producer_id, producer_epoch, partitions, adds, answer)
        self.add(node_id, verification)
        return answer

    def _responsible(self, item: _Verification) -> int:
        return self._coordinator_of(item.transactional_id)

    def _take(self, waiting: deque[_Verification]) -> list[_Verification]:
        # The response names each transactional id once.
        first_of: dict[str, _Verification] = {}
        taken: list[_Verification] = []
        while waiting and len(taken) < TRANSACTIONS_PER_REQUEST:
            first = first_of.setdefault(waiting[0].transactional_id, waiting[0])
            if not first.joins(waiting[0]):
                break
            taken.append(waiting.popleft())
        return taken

    def _request(self, items: list[_Verification]) -> AddPartitionsToTxnRequest:
        partitions: dict[str, dict[TopicPartition, None]] = {}
        transactions: dict[str, _Verification] = {}
        for item in items:
            transactions[item.transactional_id] = item
            partitions.setdefault(item.transactional_id, {}).update(dict.fromkeys(item.partitions))
        return AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    name, item.producer_id, item.producer_epoch, not item.adds, _topics(partitions[name])
                )
                for name, item in transactions.items()
            ]
        )

    def _answered(self, items: list[_Verification], response: AddPartitionsToTxnResponse) -> None:
        if response.error_code:
            # The producer must not see that this broker lacks a permission; its transaction is not verified.
            error = ErrorCode.from_code(response.error_code)
            is_denied = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            self._refuse(items, ErrorCode.INVALID_TXN_STATE if is_denied else error)
            return
        outcomes = {
            (result.transactional_id, topic.name, part.partition_index): part.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for part in topic.results_by_partition
        }
        missing = ErrorCode.NETWORK_EXCEPTION.code
        for item in items:
            item.answer.resolve(
                {
                    name: ErrorCode.from_code(outcomes.get((item.transactional_id, *name), missing))
                    for name in item.partitions
                }
            )

    def _failed(self, items: list[_Verification], error: Exception) -> None:
        if isinstance(error, PeerUnsupported):
            # As in Kafka, a coordinator without this version does not verify.
            for item in items:
                item.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE if item.adds else ErrorCode.NONE)
            return
        self._refuse(items, ErrorCode.NETWORK_EXCEPTION)

    def _refuse(self, items: list[_Verification], error: ErrorCode) -> None:
        for item in items:
            item.refuse(error)


def _topics(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return [AddPartitionsToTxnTopic(*topic) for topic in topics.items()]
