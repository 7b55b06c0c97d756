"""The ledger of the decision, kept by a broker: plain requests of Kafka's protocol and nothing else.

A query has a name of its own, which is a transactional id (of who decides) and a group (with the note as its
offset: the batch, and the text beside it). The offset is one of `__consumer_offsets` itself: that topic is on
every broker that keeps groups, whatever topics the query writes to.
"""

import asyncio
import re
import time
from collections.abc import Collection

from runnel.client.accumulator import Identity
from runnel.client.cluster import TRANSACTION_KEY, Cluster
from runnel.client.errors import BrokerRefused, NotSpoken, check
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
from runnel.pipelines.sink.decision import InDoubt, Note, Part
from runnel.pipelines.sink.notes import note_from, note_texts, piece_count

NOTES_TOPIC = "__consumer_offsets"
DECISION_TIMEOUT_MS = 60_000
STABLE_TIMEOUT_S = 10.0
MARGIN_MS = 30_000
"""A transaction that has less time left than this is not decided any more, unless its timeout is short."""
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

    async def claim(self) -> Identity:
        return await self._transactions.take_over(self._name, timeout_ms=DECISION_TIMEOUT_MS)

    async def read(self) -> Note | None:
        try:
            async with asyncio.timeout(STABLE_TIMEOUT_S):
                return await self._read()
        except TimeoutError:
            # Whoever was about to decide has died over it, or takes far too long.
            await self.claim()
            return await self._read()

    async def _read(self) -> Note | None:
        count = 1
        while True:
            places = [TopicPartition(NOTES_TOPIC, index) for index in range(count)]
            commits = await Groups(self._cluster).settled(self._name, places)
            if places[0] not in commits:
                return None
            texts = {place.partition: (commit.offset, commit.metadata) for place, commit in commits.items()}
            # Between two questions the note may have changed.
            if (wanted := piece_count(texts[0][1])) <= count:
                return note_from(texts[0][0], texts, f"{self._name}-")
            count = wanted

    async def write(self, claim: Identity, note: Note) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=claim.producer_id,
            producer_epoch=claim.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(NOTES_TOPIC, _pieces(note, f"{self._name}-"))],
        )
        await self._announce(claim)
        await self._cluster.retrying(lambda: self._send(request), self._forget)
        await self._transactions.commit(self._name, claim.producer_id, claim.producer_epoch)

    async def _send(self, request: TxnOffsetCommitRequest) -> None:
        answer = await self._cluster.ask_coordinator(self._name, request, TxnOffsetCommitResponse)
        for topic in answer.topics:
            for view in topic.partitions:
                check(view.error_code, f"noting a decision under {self._name}")

    async def _announce(self, claim: Identity) -> None:
        """Say that the transaction is about to commit an offset; newer brokers see that by themselves."""

        async def ask() -> None:
            connection = await self._cluster.connection(await self._cluster.coordinator(self._name))
            if connection.feature("transaction.version") >= 2:
                return
            request = AddOffsetsToTxnRequest(
                self._name, claim.producer_id, claim.producer_epoch, group_id=self._name
            )
            answer = await self._cluster.ask_coordinator(
                self._name, request, AddOffsetsToTxnResponse, kind=TRANSACTION_KEY
            )
            check(answer.error_code, f"beginning a decision under {self._name}")

        await self._cluster.retrying(ask, self._forget)

    def _forget(self) -> None:
        self._cluster.forget_coordinator(self._name)
        self._cluster.forget_coordinator(self._name, TRANSACTION_KEY)

    # The transactions of tasks.

    async def is_open(self, part: Part) -> bool:
        view = await self._describe(part)
        if view is None or view.state != ONGOING or _identity(view) != part:
            return False
        margin_ms = min(MARGIN_MS, view.timeout_ms // 10)
        return time.time() * 1000 < (view.started_ms or 0) + view.timeout_ms - margin_ms

    async def commit(self, part: Part) -> bool:
        try:
            await self._transactions.commit(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerRefused as refused:
            if refused.error not in _MOVED_ON:
                raise
            return await self._fate(part, refused)
        return True

    async def _fate(self, part: Part, refused: BrokerRefused) -> bool:
        """How a transaction ended that cannot be ended any more."""
        view = await self._describe(part)
        is_same = view is not None and view.producer_id == part.producer_id
        if view is not None and is_same and view.state in _ABORTED:
            return False
        is_next = view is not None and view.producer_epoch - part.producer_epoch in (0, 1)
        if view is not None and is_same and is_next and view.state in _COMMITTED:
            return True
        state = "is unknown" if view is None else f"is {view.state} at epoch {view.producer_epoch}"
        raise InDoubt(
            f"the decided transaction {part.transactional_id} of producer {part.producer_id} at epoch "
            f"{part.producer_epoch} {state}: nobody can tell how it ended ({refused})"
        ) from refused

    async def abort(self, part: Part) -> None:
        try:
            await self._transactions.abort(part.transactional_id, part.producer_id, part.producer_epoch)
        except BrokerRefused as refused:
            if refused.error not in _MOVED_ON:
                raise

    async def others(self, parts: Collection[Part]) -> list[Part]:
        ours = {part.transactional_id for part in parts}
        views = [
            await self._describe(Part(name, -1, -1)) for name in await self._open_names() if name not in ours
        ]
        return [_identity(view) for view in views if view is not None and view.state == ONGOING]

    async def _open_names(self) -> list[str]:
        pattern = rf"{re.escape(self._name)}-[0-9a-f]+-\d+"
        try:
            listings = await self._transactions.find(states=[ONGOING], pattern=pattern)
        except (NotSpoken, BrokerRefused):
            try:
                listings = await self._transactions.find(states=[ONGOING])
            except NotSpoken:
                # A broker of before Kafka 3.0: what dead tasks left open stays until it times out.
                return []
        return [view.transactional_id for view in listings if re.fullmatch(pattern, view.transactional_id)]

    async def _describe(self, part: Part) -> TransactionView | None:
        try:
            return await self._transactions.describe(part.transactional_id)
        except BrokerRefused as refused:
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
