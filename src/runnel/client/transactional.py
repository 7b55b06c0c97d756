"""A transactional producer.

async with TransactionalProducer(cluster, "billing") as producer, producer.transaction():
    await producer.send("orders", b"a cup of tea")
    await producer.send("payments", b"2.50")
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import BrokerError, ClientError
from runnel.client.producer import DELIVERY_TIMEOUT_S, Producer
from runnel.client.transactions import Transactions
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

TIMEOUT_MS = 60_000
"""The default transaction timeout."""

FENCED = {
    # The coordinator has aborted the transaction of a producer that it fenced.
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class TransactionalProducer(Producer):
    """A transactional producer; its first transaction fences earlier ones with its transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        compression: str = "none",
        linger_ms: int = 0,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        super().__init__(
            cluster,
            acks="all",
            compression=compression,
            linger_ms=linger_ms,
            delivery_timeout_s=delivery_timeout_s,
        )
        self.transactional_id = self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._transactions = Transactions(cluster)
        self._is_open = False
        self._must_initialize = True
        self._added_partitions: set[TopicPartition] = set()
        self._abortable_error: ClientError | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """One transaction: committed at the end of the block, aborted if an exception is raised."""
        await self.begin()
        try:
            yield
        except BaseException:
            await self.abort()
            raise
        await self.commit()

    async def begin(self) -> None:
        """Begin a transaction."""
        if self._is_open:
            raise ClientError(f"a transaction of {self.transactional_id} is already open")
        if self._must_initialize:
            self._identity = await self._init_producer_id()
            self._batches.reset_sequences()
            self._must_initialize = False
        self._is_open = True

    async def commit(self) -> None:
        """Commit the transaction; if a record could not be sent, abort it and raise the error."""
        try:
            await self.flush()
            if self._abortable_error is not None:
                raise self._abortable_error
        except BaseException:
            await self.abort()
            raise
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Abort the transaction; queued records are dropped."""
        # In-flight batches must complete first: after the end they would start a new transaction.
        while not self._batches.is_empty:
            for batch in self._batches.clear():
                batch.failed(ClientError("the transaction was aborted"))
            if self._batches.in_flight:
                await self._wait_for_progress()
        await self._end(is_commit=False)

    async def close(self, *, flush: bool = True) -> None:
        """Close the producer; an open transaction is aborted."""
        try:
            if self._is_open:
                await self.abort()
        finally:
            await super().close(flush=False)

    async def _end(self, *, is_commit: bool) -> None:
        identity, added_partitions, abortable_error = (
            self._identity,
            self._added_partitions,
            self._abortable_error,
        )
        assert identity is not None
        self._is_open, self._added_partitions, self._abortable_error = False, set(), None
        # The next epoch is unknown until the coordinator responds.
        self._must_initialize = True
        # The coordinator does not know a transaction without partitions.
        if added_partitions:
            end = self._transactions.commit if is_commit else self._transactions.abort
            self._identity = await end(self.transactional_id, identity.producer_id, identity.producer_epoch)
        has_new_epoch = self._identity != identity
        if has_new_epoch:
            self._batches.reset_sequences()
        # After a failed batch the sequence numbers of this epoch are unknown.
        self._must_initialize = abortable_error is not None and not has_new_epoch

    # Overrides of Producer.

    async def _init_producer_id(self) -> ProducerIdentity:
        return await self._transactions.init_producer_id(self.transactional_id, timeout_ms=self._timeout_ms)

    def _check_may_send(self) -> None:
        self._check_running()
        if not self._is_open:
            raise ClientError(f"{self.transactional_id} has no open transaction")
        if self._abortable_error is not None:
            raise self._abortable_error

    def _batch_failed(self, error: ClientError) -> None:
        """A transaction with a failed record can only be aborted, so all queued records fail."""
        self._abortable_error = self._abortable_error or error
        for batch in self._batches.clear():
            batch.failed(error)

    async def _add_partitions(self, leader: Connection, partitions: Sequence[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._added_partitions]
        # With transaction V2 (KIP-890), the first batch adds its partition implicitly.
        if new and leader.feature("transaction.version") < 2:
            assert self._identity is not None
            await self._transactions.add_partitions(self.transactional_id, self._identity, new)
        self._added_partitions.update(new)


def is_fenced(error: BaseException | None) -> bool:
    """Whether an error, or what it followed from, is that of a fenced producer."""
    while error is not None:
        if isinstance(error, BrokerError) and error.error in FENCED:
            return True
        error = error.__cause__ or error.__context__
    return False
