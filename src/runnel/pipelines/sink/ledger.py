"""The ledger of the decision, kept by a broker: plain requests of Kafka's protocol and nothing else.

A query has a name of its own, which is a transactional id (of who decides) and a group (with the note as its
offset: the batch, and the text beside it). The offset is one of `__consumer_offsets` itself: that topic is on
every broker that keeps groups, whatever topics the query writes to.
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
from runnel.pipelines.sink.decision import Fate, Note, Part
from runnel.pipelines.sink.names import id_pattern
from runnel.pipelines.sink.notes import note_from, note_texts, piece_count
from runnel.pipelines.sink.timeouts import init_producer_id_at_most

NOTES_TOPIC = "__consumer_offsets"
DECISION_TIMEOUT_MS = 60_000
STABLE_TIMEOUT_S = 10.0
MARGIN_MS = 30_000
"""A transaction that has less time left than this is not decided any more, unless its timeout is short."""
LOOK_TIMEOUT_S = 5.0
"""How long to look for what else is open. It is tidying up: nothing depends on finding all of it."""
LISTING_TIMEOUT_S = 3.0
_MOVED_ON = {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
_COMMITTED = {"CompleteCommit", "PrepareCommit"}
_ABORTED = {"CompleteAbort", "PrepareAbort", "PrepareEpochFence"}


class BrokerLedger:
    """What a broker knows of one query."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._transactions = Transactions(cluster)

    async def claim(self) -> ProducerIdentity:
        return await init_producer_id_at_most(self._cluster, self._name, DECISION_TIMEOUT_MS)

    async def read(self) -> Note | None:
        try:
            async with asyncio.timeout(STABLE_TIMEOUT_S):
                return await self._read()
        except TimeoutError:
            # The decider has died, or takes far too long.
            await self.claim()
            return await self._read()

    async def _read(self) -> Note | None:
        count = 1
        while True:
            places = [TopicPartition(NOTES_TOPIC, index) for index in range(count)]
            commits = await Groups(self._cluster).stable_offsets(self._name, places)
            if places[0] not in commits:
                return None
            texts = {place.partition: (commit.offset, commit.metadata) for place, commit in commits.items()}
            # Between two questions the note may have changed.
            if (wanted := piece_count(texts[0][1])) <= count:
                return note_from(texts[0][0], texts, f"{self._name}-")
            count = wanted

    async def write(self, claim: ProducerIdentity, note: Note) -> ProducerIdentity:
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=claim.producer_id,
            producer_epoch=claim.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(NOTES_TOPIC, _pieces(note, f"{self._name}-"))],
        )
        await self._announce(claim)
        await self._cluster.retry(lambda: self._send(request), self._forget)
        # Newer brokers give each transaction an epoch of its own, so the claim is another one from now on.
        return await self._transactions.commit(self._name, claim.producer_id, claim.producer_epoch)

    async def _send(self, request: TxnOffsetCommitRequest) -> None:
        answer = await self._cluster.send_to_coordinator(self._name, request, TxnOffsetCommitResponse)
        for topic in answer.topics:
            for view in topic.partitions:
                check(view.error_code, f"noting a decision under {self._name}")

    async def _announce(self, claim: ProducerIdentity) -> None:
        """Say that the transaction is about to commit an offset; newer brokers see that by themselves."""

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
            check(answer.error_code, f"beginning a decision under {self._name}")

        await self._cluster.retry(ask, self._forget)

    def _forget(self) -> None:
        self._cluster.invalidate_coordinator(self._name)
        self._cluster.invalidate_coordinator(self._name, TRANSACTION_KEY)

    # The transactions of tasks.

    async def is_open(self, part: Part) -> bool:
        view = await self._describe(part)
        if view is None or view.state != ONGOING or _identity(view) != part:
            return False
        margin_ms = min(MARGIN_MS, view.timeout_ms // 10)
        return time.time() * 1000 < (view.started_ms or 0) + view.timeout_ms - margin_ms

    async def commit(self, part: Part) -> Fate:
        try:
            await self._transactions.commit(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerError as refused:
            if refused.error not in _MOVED_ON:
                raise
            return await self._fate(part)
        return Fate.COMMITTED

    async def _fate(self, part: Part) -> Fate:
        """How a transaction ended that cannot be ended any more.

        Its end, or a timeout, may have raised the epoch by one. A higher epoch belongs to a later
        transaction. An id that a note names is not used again, so the next epoch can be of this one only.
        """
        view = await self._describe(part)
        if view is None or view.producer_id != part.producer_id:
            return Fate.UNKNOWN
        if view.producer_epoch - part.producer_epoch not in (0, 1):
            return Fate.UNKNOWN
        if view.state in _ABORTED:
            return Fate.LOST
        return Fate.COMMITTED if view.state in _COMMITTED else Fate.UNKNOWN

    async def abort(self, part: Part) -> None:
        try:
            await self._transactions.abort(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerError as refused:
            if refused.error not in _MOVED_ON:
                raise

    async def others(self, parts: Collection[Part]) -> list[Part]:
        ours = {part.transactional_id for part in parts}
        found: list[Part] = []
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                for name in await self._open_names():
                    view = None if name in ours else await self._describe(Part(name, -1, -1))
                    if view is not None and view.state == ONGOING:
                        found.append(_identity(view))
        except (ClientError, TimeoutError):
            # A broker is away. What it has open, the next batch undoes, or time does.
            pass
        return found

    async def _open_names(self) -> list[str]:
        pattern = id_pattern(self._name)
        try:
            listings = await self._transactions.find(
                states=[ONGOING], pattern=pattern, timeout_s=LISTING_TIMEOUT_S
            )
        except (UnsupportedVersion, BrokerError):
            # An older broker knows no patterns; one of before Kafka 3.0 cannot be asked at all.
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


def _pieces(note: Note, prefix: str) -> list[TxnOffsetCommitRequestPartition]:
    return [
        TxnOffsetCommitRequestPartition(index, note.batch, committed_metadata=text)
        for index, text in enumerate(note_texts(note, prefix))
    ]
