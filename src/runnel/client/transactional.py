"""Sending records in transactions: readers of committed records see all of one, or nothing.

async with TransactionalProducer(cluster, "billing") as producer, producer.transaction():
    await producer.send("orders", b"a cup of tea")
    await producer.send("payments", b"2.50")
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import ClientError
from runnel.client.producer import Producer
from runnel.client.transactions import Transactions
from runnel.model.ids import TopicPartition

TIMEOUT_MS = 60_000
"""How long a transaction may stay open before the broker aborts it, unless told otherwise."""


class TransactionalProducer(Producer):
    """The holder of a transactional id; whoever held it before is fenced by its first transaction."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        compression: str = "none",
        linger_ms: int = 0,
    ) -> None:
        super().__init__(cluster, acks="all", compression=compression, linger_ms=linger_ms)
        self.transactional_id = self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._transactions = Transactions(cluster)
        self._is_open = False
        self._must_initialize = True
        self._added_partitions: set[TopicPartition] = set()
        self._abortable_error: ClientError | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """One transaction: committed at the end of the block, aborted if anything goes wrong in it."""
        await self.begin()
        try:
            yield
        except BaseException:
            await self.abort()
            raise
        await self.commit()

    async def begin(self) -> None:
        """Open a transaction."""
        if self._is_open:
            raise ClientError(f"a transaction of {self.transactional_id} is open already")
        if self._must_initialize:
            self._identity = await self._init_producer_id()
            self._batches.reset_sequences()
            self._must_initialize = False
        self._is_open = True

    async def commit(self) -> None:
        """Let readers see the transaction; if a record could not be sent, abort it and raise why."""
        try:
            await self.flush()
            if self._abortable_error is not None:
                raise self._abortable_error
        except BaseException:
            await self.abort()
            raise
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Undo the transaction: what waits is dropped, what was sent no reader of committed records sees."""
        # A batch on its way must have arrived: behind the end, it would open the transaction again.
        while not self._batches.is_empty:
            for batch in self._batches.clear():
                batch.failed(ClientError("the transaction was aborted"))
            if self._batches.in_flight:
                await self._wait_for_progress()
        await self._end(is_commit=False)

    async def close(self, *, flush: bool = True) -> None:
        """End the producer; a transaction that is still open is aborted."""
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
        # Until the coordinator has answered, nobody knows which epoch comes next.
        self._must_initialize = True
        # A transaction that wrote nothing is unknown to its coordinator.
        if added_partitions:
            end = self._transactions.commit if is_commit else self._transactions.abort
            self._identity = await end(self.transactional_id, identity.producer_id, identity.producer_epoch)
        has_new_epoch = self._identity != identity
        if has_new_epoch:
            self._batches.reset_sequences()
        # After a batch that failed, the sequence numbers of this epoch are uncertain.
        self._must_initialize = abortable_error is not None and not has_new_epoch

    # What a producer does differently in transactions.

    async def _init_producer_id(self) -> ProducerIdentity:
        return await self._transactions.init_producer_id(self.transactional_id, timeout_ms=self._timeout_ms)

    def _check_may_send(self) -> None:
        self._check_running()
        if not self._is_open:
            raise ClientError(f"no transaction of {self.transactional_id} is open: begin one first")
        if self._abortable_error is not None:
            raise self._abortable_error

    def _batch_failed(self, error: ClientError) -> None:
        """A transaction without one of its records can only be aborted: nothing else of it needs to go."""
        self._abortable_error = self._abortable_error or error
        for batch in self._batches.clear():
            batch.failed(error)

    async def _add_partitions(self, leader: Connection, partitions: Sequence[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._added_partitions]
        # Since version 2 of the feature (KIP-890), the first batch itself adds its partition.
        if new and leader.feature("transaction.version") < 2:
            assert self._identity is not None
            await self._transactions.add_partitions(self.transactional_id, self._identity, new)
        self._added_partitions.update(new)
