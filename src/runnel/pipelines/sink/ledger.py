"""The ledger stored on a broker, with requests of Kafka's protocol only.

The name of a query is the transactional id of its driver and the id of a group. The commit marker is the
group's committed offset: the offset is the batch, the metadata lists the parts. It is committed for
partitions of `__consumer_offsets` itself: that topic exists on every cluster that stores groups.
"""

import asyncio
import re
import time
from collections.abc import Collection

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import TRANSACTION_KEY, Cluster
from runnel.client.errors import BrokerError, ClientError, UnsupportedVersion, check
from runnel.client.groups import Groups
from runnel.client.transactions import ONGOING, Transactions, TransactionView
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.sink.commit_markers import marker_from, marker_texts, piece_count
from runnel.pipelines.sink.decision import CommitMarker, Outcome, Part
from runnel.pipelines.sink.names import id_pattern
from runnel.pipelines.sink.timeouts import init_producer_id_at_most

MARKER_TOPIC = "__consumer_offsets"
DECISION_TIMEOUT_MS = 60_000
STABLE_TIMEOUT_S = 10.0
EXPIRY_MARGIN_MS = 30_000
"""A transaction with less time left than this is not committed, unless its timeout is short."""
SCAN_TIMEOUT_S = 5.0
"""Limit for listing orphaned transactions. Correctness does not depend on finding all of them."""
LISTING_TIMEOUT_S = 3.0
_NO_LONGER_CURRENT = {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
_COMMITTED = {"CompleteCommit", "PrepareCommit"}
_ABORTED = {"CompleteAbort", "PrepareAbort", "PrepareEpochFence"}


class BrokerLedger:
    """The state of one query on the broker."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._transactions = Transactions(cluster)

    async def claim(self) -> ProducerIdentity:
        return await init_producer_id_at_most(self._cluster, self._name, DECISION_TIMEOUT_MS)

    async def read(self) -> CommitMarker | None:
        try:
            async with asyncio.timeout(STABLE_TIMEOUT_S):
                return await self._read()
        except TimeoutError:
            # The driver that is writing the marker has failed or hangs: fence it.
            await self.claim()
            return await self._read()

    async def _read(self) -> CommitMarker | None:
        count = 1
        while True:
            partitions = [TopicPartition(MARKER_TOPIC, index) for index in range(count)]
            commits = await Groups(self._cluster).stable_offsets(self._name, partitions)
            if partitions[0] not in commits:
                return None
            texts = {
                partition.partition: (commit.offset, commit.metadata) for partition, commit in commits.items()
            }
            # The commit marker may have changed between the two requests.
            if (wanted := piece_count(texts[0][1])) <= count:
                return marker_from(texts[0][0], texts, f"{self._name}-")
            count = wanted

    async def write(self, claim: ProducerIdentity, marker: CommitMarker) -> ProducerIdentity:
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=claim.producer_id,
            producer_epoch=claim.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(MARKER_TOPIC, _pieces(marker, f"{self._name}-"))],
        )
        await self._add_offsets_to_transaction(claim)
        await self._cluster.retry(lambda: self._send(request), self._invalidate_coordinators)
        # With KIP-890 each transaction bumps the epoch: return the new claim.
        return await self._transactions.commit(self._name, claim.producer_id, claim.producer_epoch)

    async def _send(self, request: TxnOffsetCommitRequest) -> None:
        answer = await self._cluster.send_to_coordinator(self._name, request, TxnOffsetCommitResponse)
        for topic in answer.topics:
            for view in topic.partitions:
                check(view.error_code, f"writing the commit marker of {self._name}")

    async def _add_offsets_to_transaction(self, claim: ProducerIdentity) -> None:
        """Add the group to the transaction; with transaction.version 2 brokers do so themselves."""

        async def ask() -> None:
            connection = await self._cluster.connection(await self._cluster.coordinator(self._name))
            if connection.feature("transaction.version") >= 2:
                return
            request = AddOffsetsToTxnRequest(
                self._name, claim.producer_id, claim.producer_epoch, group_id=self._name
            )
            answer = await self._cluster.send_to_coordinator(
                self._name, request, AddOffsetsToTxnResponse, kind=TRANSACTION_KEY
            )
            check(answer.error_code, f"adding offsets to the transaction of {self._name}")

        await self._cluster.retry(ask, self._invalidate_coordinators)

    def _invalidate_coordinators(self) -> None:
        self._cluster.invalidate_coordinator(self._name)
        self._cluster.invalidate_coordinator(self._name, TRANSACTION_KEY)

    # The transactions of tasks.

    async def is_open(self, part: Part) -> bool:
        view = await self._describe(part)
        if view is None or view.state != ONGOING or _identity(view) != part:
            return False
        margin_ms = min(EXPIRY_MARGIN_MS, view.timeout_ms // 10)
        return time.time() * 1000 < (view.started_ms or 0) + view.timeout_ms - margin_ms

    async def commit(self, part: Part) -> Outcome:
        try:
            await self._transactions.commit(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerError as refused:
            if refused.error not in _NO_LONGER_CURRENT:
                raise
            return await self._outcome(part)
        return Outcome.COMMITTED

    async def _outcome(self, part: Part) -> Outcome:
        """The outcome of a transaction that is no longer open.

        Committing, aborting or a timeout may have bumped the epoch by one. A higher epoch belongs to a later
        transaction. An id in the commit marker is not reused, so the next epoch belongs to this transaction.
        """
        view = await self._describe(part)
        if view is None or view.producer_id != part.producer_id:
            return Outcome.UNKNOWN
        if view.producer_epoch - part.producer_epoch not in (0, 1):
            return Outcome.UNKNOWN
        if view.state in _ABORTED:
            return Outcome.ABORTED
        return Outcome.COMMITTED if view.state in _COMMITTED else Outcome.UNKNOWN

    async def abort(self, part: Part) -> None:
        try:
            await self._transactions.abort(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerError as refused:
            if refused.error not in _NO_LONGER_CURRENT:
                raise

    async def other_open_parts(self, parts: Collection[Part]) -> list[Part]:
        ours = {part.transactional_id for part in parts}
        found: list[Part] = []
        try:
            async with asyncio.timeout(SCAN_TIMEOUT_S):
                for name in await self._open_names():
                    view = None if name in ours else await self._describe(Part(name, -1, -1))
                    if view is not None and view.state == ONGOING:
                        found.append(_identity(view))
        except (ClientError, TimeoutError):
            # A broker is unavailable. The next batch or the timeout aborts its open transactions.
            pass
        return found

    async def _open_names(self) -> list[str]:
        pattern = id_pattern(self._name)
        try:
            listings = await self._transactions.find(
                states=[ONGOING], pattern=pattern, timeout_s=LISTING_TIMEOUT_S
            )
        except (UnsupportedVersion, BrokerError):
            # An older broker does not support patterns; before Kafka 3.0 there is no ListTransactions.
            listings = await self._transactions.find(states=[ONGOING], timeout_s=LISTING_TIMEOUT_S)
        return [view.transactional_id for view in listings if re.fullmatch(pattern, view.transactional_id)]

    async def _describe(self, part: Part) -> TransactionView | None:
        try:
            return await self._transactions.describe(part.transactional_id)
        except BrokerError as refused:
            if refused.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise


def _identity(view: TransactionView) -> Part:
    return Part(view.transactional_id, view.producer_id, view.producer_epoch)


def _pieces(marker: CommitMarker, prefix: str) -> list[TxnOffsetCommitRequestPartition]:
    return [
        TxnOffsetCommitRequestPartition(index, marker.batch, committed_metadata=text)
        for index, text in enumerate(marker_texts(marker, prefix))
    ]
