"""Records back into a topic: in order, in the partition they came from, each once.

Every partition has a transactional id of its own. Whoever takes it over fences a writer from before, whose
open transaction is aborted; the last committed record then says where to go on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.loop_thread import LoopThread
from runnel.client.transactional import TransactionalProducer
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import pipeline_error
from runnel.pipelines.errors import TargetInUse
from runnel.pipelines.restore.trail import find_trail, restore_headers

TRANSACTION_TIMEOUT_MS = 300_000
LINGER_MS = 5

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
class Target:
    """Where records are restored to, and from which topic they come."""

    bootstrap: str
    topic: str
    source_topic: str
    is_appending: bool = False
    compression: str = "zstd"
    transaction_records: int = 50_000
    transaction_bytes: int = 64 * 1024 * 1024


def write_rows(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: rows by partition and offset in, what became of them out."""
    thread = LoopThread("runnel restore")
    try:
        yield from _write_rows(thread, target, batches)
    except ClientError as error:
        raise pipeline_error(error) from error
    finally:
        thread.close()


def _write_rows(
    thread: LoopThread, target: Target, batches: Iterable[pa.RecordBatch]
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


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of an Arrow batch, in runs of the same partition."""
    rows = batch.to_pylist()
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index]["partition"] != rows[start]["partition"]:
            yield rows[start]["partition"], rows[start:index]
            start = index


class _PartitionWriter:
    """Writes the records of one partition, transaction by transaction."""

    def __init__(self, target: Target, number: int) -> None:
        self.number = number
        self._target = target
        self._partition = TopicPartition(target.topic, number)
        self._cluster = Cluster(target.bootstrap, client_id="runnel-restore")
        self._producer = TransactionalProducer(
            self._cluster,
            f"runnel-restore-{self._partition}",
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            compression=target.compression,
            linger_ms=LINGER_MS,
        )
        self._last: int | None = None
        self._records = 0
        self._records_before = 0
        self._open_records = 0
        self._open_bytes = 0

    async def open(self) -> None:
        """Take the partition over, and find where a restore before this one ended."""
        await self._cluster.__aenter__()
        # First this, then the look: what another writer had open is decided by then.
        await self._producer.begin()
        trail = await find_trail(self._cluster, self._partition, self._target.source_topic)
        if trail.has_records and trail.last_offset is None and not self._target.is_appending:
            raise in_use(self._partition, self._target.source_topic)
        self._last = trail.last_offset

    async def write(self, rows: list[dict[str, Any]]) -> None:
        """Send rows that a restore before this one did not."""
        for row in rows:
            if self._last is not None and row["offset"] <= self._last:
                self._records_before += 1
                continue
            if (
                self._open_records >= self._target.transaction_records
                or self._open_bytes >= self._target.transaction_bytes
            ):
                await self._commit()
                await self._producer.begin()
            await self._send(row)

    async def finish(self) -> pa.RecordBatch:
        """Commit the rest; what was done as a row of the result."""
        await self._commit()
        await self.close()
        columns = [[self.number], [self._records], [self._records_before]]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _RESULT_ARROW, strict=True)],
            schema=_RESULT_ARROW,
        )

    async def close(self) -> None:
        """Let go; a transaction that is open is aborted."""
        try:
            await self._producer.close()
        finally:
            await self._cluster.close()

    async def _send(self, row: dict[str, Any]) -> None:
        own = [(header["key"], header["value"]) for header in row["headers"] or ()]
        trail = restore_headers(self._target.source_topic, self.number, row["offset"], row["timestamp_ms"])
        await self._producer.send(
            self._target.topic,
            row["value"],
            key=row["key"],
            headers=[*own, *trail],
            partition=self.number,
            timestamp_ms=row["timestamp_ms"],
        )
        self._open_records += 1
        self._open_bytes += len(row["key"] or b"") + len(row["value"] or b"")

    async def _commit(self) -> None:
        await self._producer.commit()
        self._records += self._open_records
        self._open_records = self._open_bytes = 0


def in_use(partition: TopicPartition, source_topic: str) -> TargetInUse:
    """Why a partition is not written to."""
    return TargetInUse(
        f"{partition} has records that were not restored from {source_topic}: restore to another topic with "
        "--to NAME, or behind those records with --append"
    )
