"""Administration of transactions: listing, describing, and aborting hanging ones."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import TRANSACTION_KEY, Cluster
from runnel.client.errors import BrokerError, ClientError, UnsupportedVersion, check
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from runnel.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from runnel.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

T = TypeVar("T")

ONGOING = "Ongoing"
OPEN = {ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
"""The states of a transaction that is not complete."""


@dataclass(slots=True)
class TransactionListing:
    """A listed transactional id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(slots=True)
class TransactionView:
    """A described transactional id."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """When the open transaction started; None if none is open."""
    partitions: list[TopicPartition]
    coordinator: int


@dataclass(slots=True)
class ProducerView:
    """The producer state of a partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None
    """The first offset of its open transaction in this partition; None if none is open."""


@dataclass(slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, but not in its coordinator."""

    producer: ProducerView
    transactional_id: str | None
    """The transactional id of the producer, if the coordinator knows it."""


class Transactions:
    """Administers the transactions of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids that match the filters, sorted.

        `longer_than_ms` filters by duration, `pattern` is a regular expression for the whole id. With
        `timeout_s`, brokers that do not respond in time are skipped.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        await self._cluster.retry(lambda: self._cluster.refresh([]))
        nodes = list(self._cluster.nodes)
        responses = await asyncio.gather(
            *(self._list_in_time(node_id, request, timeout_s) for node_id in nodes)
        )
        listings = [
            TransactionListing(view.transactional_id, view.producer_id, view.transaction_state, node_id)
            for node_id, response in zip(nodes, responses, strict=True)
            if response is not None
            for view in response.transaction_states
        ]
        return sorted(listings, key=lambda listing: listing.transactional_id)

    async def _list_in_time(
        self, node_id: int, request: ListTransactionsRequest, timeout_s: float | None
    ) -> ListTransactionsResponse | None:
        """The transactions of a broker; None if it does not respond in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._cluster.retry(partial(self._list, node_id, request))
        except (ClientError, TimeoutError) as error:
            is_transient = not isinstance(error, ClientError) or error.retriable
            if timeout_s is None or not is_transient:
                raise
            return None

    async def _list(self, node_id: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        version = (await self._cluster.connection(node_id)).version_of(request)
        # A filter that the broker does not support would be ignored silently.
        if (request.duration_filter >= 0 and version < 1) or (
            request.transactional_id_pattern and version < 2
        ):
            raise UnsupportedVersion(f"broker {node_id} does not support this filter")
        response = await self._cluster.send_to_node(node_id, request, ListTransactionsResponse)
        about = f"listing the transactions of broker {node_id}"
        check(response.error_code, about)
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise BrokerError(ErrorCode.INVALID_REQUEST, about, f"unknown state {unknown}")
        return response

    async def describe(self, transactional_id: str) -> TransactionView:
        """Describe a transactional id; BrokerError with TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""

        async def attempt() -> TransactionView:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await self._cluster.send_to_coordinator(
                transactional_id, request, DescribeTransactionsResponse, kind=TRANSACTION_KEY
            )
            view = response.transaction_states[0]
            check(view.error_code, f"transactional id {transactional_id}")
            return TransactionView(
                view.transactional_id,
                view.transaction_state,
                view.producer_id,
                view.producer_epoch,
                view.transaction_timeout_ms,
                # Coordinators retain the start time of the last transaction.
                view.transaction_start_time_ms if view.transaction_state in OPEN else None,
                sorted(
                    TopicPartition(topic.topic, number)
                    for topic in view.topics
                    for number in topic.partitions
                ),
                await self._cluster.coordinator(transactional_id, TRANSACTION_KEY),
            )

        return await self._retry(transactional_id, attempt)

    # Producer operations.

    async def add_partitions(
        self, transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the transaction; not retried, because the caller retries its batch.

        With transaction V2 (KIP-890), the first batch does so implicitly.
        """
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, AddPartitionsToTxnTopic(partition.topic))
            topic.partitions.append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        try:
            response = await self._cluster.send_to_coordinator(
                transactional_id, request, AddPartitionsToTxnResponse, kind=TRANSACTION_KEY
            )
            for result in response.results_by_topic_v3_and_below:
                for view in result.results_by_partition:
                    where = TopicPartition(result.name, view.partition_index)
                    check(view.partition_error_code, f"adding {where} to the transaction")
        except ClientError:
            self._cluster.invalidate_coordinator(transactional_id, TRANSACTION_KEY)
            raise

    # Initializing and ending.

    async def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, current: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Initialize a producer: fences earlier ones with its transactional id and aborts their transaction.

        If `current` is given, it fails if the producer was fenced in the meantime.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if current is None else current.producer_id,
            producer_epoch=-1 if current is None else current.producer_epoch,
        )

        async def attempt() -> ProducerIdentity:
            response = await self._cluster.send_to_coordinator(
                transactional_id, request, InitProducerIdResponse, kind=TRANSACTION_KEY
            )
            check(response.error_code, f"initializing transactional id {transactional_id}")
            return ProducerIdentity(response.producer_id, response.producer_epoch, is_transactional=True)

        return await self._retry(transactional_id, attempt)

    async def commit(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ProducerIdentity:
        """Commit a transaction, also one of another process. Idempotent."""
        return await self._end(EndTxnRequest(transactional_id, producer_id, producer_epoch, committed=True))

    async def abort(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ProducerIdentity:
        """Abort a transaction, also one of another process. Idempotent."""
        return await self._end(EndTxnRequest(transactional_id, producer_id, producer_epoch, committed=False))

    async def _end(self, request: EndTxnRequest) -> ProducerIdentity:
        verb = "committing" if request.committed else "aborting"

        async def attempt() -> ProducerIdentity:
            response = await self._cluster.send_to_coordinator(
                request.transactional_id, request, EndTxnResponse, kind=TRANSACTION_KEY
            )
            check(response.error_code, f"{verb} the transaction of {request.transactional_id}")
            if response.producer_id < 0:
                return ProducerIdentity(request.producer_id, request.producer_epoch, is_transactional=True)
            return ProducerIdentity(response.producer_id, response.producer_epoch, is_transactional=True)

        return await self._retry(request.transactional_id, attempt)

    async def abort_hanging(self, producer: ProducerView) -> None:
        """Abort a hanging transaction in one partition, bypassing the coordinator."""
        topic = WritableTxnMarkerTopic(producer.partition.topic, [producer.partition.partition])
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[topic],
            # A partition without a marker of this producer has no coordinator epoch.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker])

        async def attempt() -> None:
            leader = await self._cluster.leader(producer.partition)
            response = await self._cluster.send_to_node(leader, request, WriteTxnMarkersResponse)
            [result] = response.markers[0].topics[0].partitions
            check(result.error_code, f"aborting the transaction of producer {producer.producer_id}")

        await self._cluster.retry(attempt, lambda: self._cluster.invalidate_topic(producer.partition.topic))

    # Producer state of partitions.

    async def producers(self, partitions: Iterable[TopicPartition]) -> list[ProducerView]:
        """The producer states of partitions."""
        wanted = list(partitions)

        async def attempt() -> list[ProducerView]:
            groups = await self._cluster.by_leader(wanted)
            found = await asyncio.gather(*(self._producers(node, names) for node, names in groups.items()))
            return [view for views in found for view in views]

        def recover() -> None:
            for partition in wanted:
                self._cluster.invalidate_topic(partition.topic)

        views = await self._cluster.retry(attempt, recover)
        return sorted(views, key=lambda view: (view.partition, view.producer_id))

    async def _producers(self, node_id: int, partitions: Iterable[TopicPartition]) -> list[ProducerView]:
        topics: dict[str, TopicRequest] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, TopicRequest(partition.topic))
            topic.partition_indexes.append(partition.partition)
        request = DescribeProducersRequest(topics=list(topics.values()))
        response = await self._cluster.send_to_node(node_id, request, DescribeProducersResponse)
        views = []
        for result in response.topics:
            for part in result.partitions:
                where = TopicPartition(result.name, part.partition_index)
                check(part.error_code, f"describing the producers of {where}", part.error_message)
                views += [
                    ProducerView(
                        where,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.last_sequence,
                        producer.last_timestamp,
                        producer.coordinator_epoch,
                        None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
                    )
                    for producer in part.active_producers
                ]
        return views

    async def hanging(
        self, partitions: Iterable[TopicPartition], *, silent_since_ms: int
    ) -> list[HangingTransaction]:
        """Transactions that are open in these partitions but not in a coordinator, without recent writes.

        Recent ones are skipped, because partitions and coordinators are not updated atomically.
        """
        open_in_partitions = [
            view
            for view in await self.producers(partitions)
            if view.start_offset is not None and view.last_timestamp_ms < silent_since_ms
        ]
        if not open_in_partitions:
            return []
        producer_ids = {view.producer_id for view in open_in_partitions}
        known = {view.producer_id: view for view in await self.find(producer_ids=producer_ids)}
        hanging = []
        for view in open_in_partitions:
            listing = known.get(view.producer_id)
            name = None if listing is None else listing.transactional_id
            if name is None or view.partition not in await self._open_partitions(name):
                hanging.append(HangingTransaction(view, name))
        return hanging

    async def _open_partitions(self, transactional_id: str) -> Collection[TopicPartition]:
        try:
            return (await self.describe(transactional_id)).partitions
        except BrokerError as error:
            if error.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                # It has expired since it was listed.
                return ()
            raise

    async def _retry(self, transactional_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        def forget() -> None:
            self._cluster.invalidate_coordinator(transactional_id, TRANSACTION_KEY)

        return await self._cluster.retry(attempt, forget)
