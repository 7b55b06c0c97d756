"""Writes records back to a topic: in order, to their original partition, exactly once.

Every partition has its own transactional id. Initializing it fences the previous writer and aborts its open
transaction; the last committed record then determines where to resume.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from runnel.batch.compression import Compression
from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.loop_thread import LoopThread
from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.client.transactions import Transactions
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import pipeline_error
from runnel.pipelines.errors import BadOption, TargetInUse
from runnel.pipelines.restore.records import restored_rows
from runnel.pipelines.restore.restore_state import RestoreState, await_stable_end, find_restore_state, limit
from runnel.pipelines.sink.options import BATCH_BYTES
from runnel.pipelines.sink.packing import Packer
from runnel.pipelines.sink.partitioning import Group
from runnel.pipelines.sink.rows import pieces
from runnel.pipelines.sink.sending import BatchSender

TRANSACTION_TIMEOUT_MS = 300_000
DELIVERY_TIMEOUT_S = 120.0

RESULT = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("records", LongType()),
        StructField("records_before", LongType()),
    ]
)
_RESULT_ARROW = pa.schema(
    [("partition", pa.int32()), ("records", pa.int64()), ("records_before", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The target topic of a restore, and its source."""

    bootstrap: str
    topic: str
    source_topic: str
    is_appending: bool = False
    compression: Compression = Compression.ZSTD
    transaction_records: int = 50_000
    transaction_bytes: int = 64 * 1024 * 1024
    until_ms: int | None = None
    until_offsets: Mapping[int, int] = field(default_factory=dict)
    properties: ClientProperties = NO_PROPERTIES

    def check(self, number: int, state: RestoreState) -> None:
        """Check that a partition can be written to, given its state."""
        partition = TopicPartition(self.topic, number)
        if state.last_offset is None:
            if state.has_records and not self.is_appending:
                raise TargetInUse(
                    f"{partition} has records that were not restored from {self.source_topic}: restore to "
                    "another topic with --to NAME, or append to it with --append"
                )
            return
        until = self.until(number)
        if state.until != until:
            # Records that the first run omitted cannot be inserted later.
            raise BadOption(
                f"{partition} was restored up to {state.until or 'its end'}, and not up to "
                f"{until or 'its end'}: use the same limit, or restore to another topic with --to NAME"
            )

    def until(self, number: int) -> str | None:
        """The limit of a partition; None if there is none."""
        return limit(number, self.until_ms, self.until_offsets)


def write_rows(target: RestoreTarget, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows sorted by partition and offset; returns the result per partition. Runs in a task."""
    thread = LoopThread("runnel restore")
    try:
        yield from _write_rows(thread, target, batches)
    except ClientError as error:
        raise pipeline_error(error) from error
    finally:
        thread.close()


def _write_rows(
    thread: LoopThread, target: RestoreTarget, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    writer: _PartitionWriter | None = None
    try:
        for batch in batches:
            for partition, rows in _runs(batch):
                if writer is None or writer.number != partition:
                    if writer is not None:
                        yield thread.call(writer.finish())
                    writer = _PartitionWriter(target, partition)
                    thread.call(writer.open())
                thread.call(writer.write(rows))
        if writer is not None:
            yield thread.call(writer.finish())
            writer = None
    finally:
        if writer is not None:
            thread.call(writer.close())


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of an Arrow batch, in runs of the same partition."""
    numbers = batch.column("partition").to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(edges):
        if end > start:
            yield int(numbers[start]), batch.slice(start, end - start)


class _PartitionWriter:
    """Writes the records of one partition, transaction by transaction."""

    def __init__(self, target: RestoreTarget, number: int) -> None:
        self.number = number
        self._target = target
        self._partition = TopicPartition(target.topic, number)
        self._cluster = Cluster(target.bootstrap, client_id="runnel-restore", properties=target.properties)
        self._transactions = Transactions(self._cluster)
        self._transactional_id = f"runnel-restore-{self._partition}"
        self._identity: ProducerIdentity | None = None
        self._packer: Packer | None = None
        self._sender: BatchSender | None = None
        """Set while a transaction is open."""
        self._last = -1
        self._records = 0
        self._records_before = 0
        self._open_records = 0
        self._open_bytes = 0

    async def open(self) -> None:
        """Fence other writers of the partition, and find where to resume."""
        await self._cluster.__aenter__()
        # Fence first: afterwards no other restore has an open transaction.
        identity = await self._transactions.init_producer_id(
            self._transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._set_identity(identity)
        # Open transactions of others could hide restored records, which would then be written twice.
        end = await await_stable_end(self._cluster, self._partition)
        state = await find_restore_state(self._cluster, self._partition, self._target.source_topic, end)
        self._target.check(self.number, state)
        self._last = -1 if state.last_offset is None else state.last_offset

    async def write(self, rows: pa.RecordBatch) -> None:
        """Send the rows that are not restored yet."""
        done = int(np.searchsorted(rows.column("offset").to_numpy(), self._last, side="right"))
        self._records_before += done
        for piece in pieces(rows.slice(done)):
            start = 0
            while start < piece.num_rows:
                await self._commit_if_full()
                room = self._target.transaction_records - self._open_records
                await self._send(piece.slice(start, room))
                start += room

    async def finish(self) -> pa.RecordBatch:
        """Commit the rest and return the result row."""
        await self._commit()
        await self.close()
        columns = [[self.number], [self._records], [self._records_before]]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _RESULT_ARROW, strict=True)],
            schema=_RESULT_ARROW,
        )

    async def close(self) -> None:
        """Abort an open transaction and close the connection."""
        try:
            if self._sender is not None and self._identity is not None:
                # A batch that arrives after the abort would start another transaction.
                await self._sender.close()
                await self._transactions.abort(
                    self._transactional_id, self._identity.producer_id, self._identity.producer_epoch
                )
        finally:
            await self._cluster.close()

    def _set_identity(self, identity: ProducerIdentity) -> None:
        if identity != self._identity:
            # Sequence numbers restart with a new epoch.
            self._packer = Packer(identity, self._target.compression, BATCH_BYTES)
        self._identity = identity

    async def _send(self, rows: pa.RecordBatch) -> None:
        assert self._identity is not None and self._packer is not None
        if self._sender is None:
            self._sender = BatchSender(
                self._cluster,
                self._identity,
                timeout_s=DELIVERY_TIMEOUT_S,
                transactional_id=self._transactional_id,
            )
        until = self._target.until(self.number)
        records = restored_rows(rows, self._target.source_topic, self.number, until)
        group = Group(self._partition, 0, rows.num_rows)
        await self._sender.put(list(self._packer.add(records, [group])))
        self._open_records += rows.num_rows
        self._open_bytes += rows.nbytes

    async def _commit_if_full(self) -> None:
        if (
            self._open_records >= self._target.transaction_records
            or self._open_bytes >= self._target.transaction_bytes
        ):
            await self._commit()

    async def _commit(self) -> None:
        if self._sender is None:
            return
        assert self._identity is not None and self._packer is not None
        await self._sender.put(list(self._packer.finish()))
        await self._sender.flush()
        await self._sender.close()
        identity = await self._transactions.commit(
            self._transactional_id, self._identity.producer_id, self._identity.producer_epoch
        )
        self._sender = None
        self._set_identity(identity)
        self._records += self._open_records
        self._open_records = self._open_bytes = 0
