"""The task side of the sink: encodes rows and writes them to brokers."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError, check
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.sink.columns import Columns
from runnel.pipelines.sink.decision import BatchAction, Part, WrittenBatch, abort_parts, batch_action
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.names import process_pool
from runnel.pipelines.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions
from runnel.pipelines.sink.packing import Packer
from runnel.pipelines.sink.partitioning import StickyPartitioner, choose_partitions, grouped, topics_of
from runnel.pipelines.sink.rows import pieces, rows_of
from runnel.pipelines.sink.sending import BatchSender
from runnel.pipelines.sink.timeouts import init_producer_id, init_producer_id_at_most

ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class WriteInfo:
    """The write that a task belongs to."""

    name: str
    """The name of the query, of the application with numbered writes, or of this write."""
    batch: int
    may_be_first: bool
    is_recorded: bool
    """Is it recorded in a commit marker, so that replays are detected?"""
    is_sequential: bool = True
    """Does the next batch start only after this one is completed?"""


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task reports to the driver."""

    info: WriteInfo | None
    rows: int
    part: Part | None
    has_skipped: bool


def connected(options: SinkOptions, outage_max_s: float) -> BrokerView:
    """A connection for one task, commit or abort, which retries through outages of up to this length."""
    return BrokerView(
        options.bootstrap_servers,
        client_id=options.client_id,
        properties=options.properties,
        api_timeout_s=outage_max_s,
        connect_timeout_s=outage_max_s,
    )


def value_encoder(options: SinkOptions) -> Callable[[Any], Any] | None:
    """Encodes columns of values with the schema of the options; None if they are written as they are."""
    if options.values is None:
        return None
    from runnel.pipelines.registered.encoding import RegisteredEncoder

    return RegisteredEncoder(options.values).encode


class TaskWriter:
    """One attempt of a task. Without write info it writes at least once, with its own producer id."""

    def __init__(self, options: SinkOptions, columns: Columns, info: WriteInfo | None, number: int) -> None:
        self._options = options
        self._columns = columns
        self._info = info
        self._partitioner = StickyPartitioner(options.batch_bytes, number, {})
        self._counts: dict[str, int] = {}
        self._rows = 0
        self._part: Part | None = None
        self._action: BatchAction | None = None
        self._encode = value_encoder(options)
        self._packer: Packer | None = None
        self._sender: BatchSender | None = None

    def write(self, batches: Iterable[Any]) -> TaskCommitMessage:
        """Write all rows. On return they are acknowledged, in a transaction that is still open."""
        # All rows are consumed even if none is written: the upstream iterator must be exhausted.
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskCommitMessage(self._info, 0, None, has_skipped=False)
        with connected(self._options, self._options.delivery_timeout_s) as view:
            try:
                view.run(self._open)
                self._add(first, view)
                for batch in filled:
                    self._add(batch, view)
                view.run(self._finish)
            except BaseException:
                view.run(self._abort)
                raise
        return TaskCommitMessage(self._info, self._rows, self._part, self._action is BatchAction.SKIP)

    def _add(self, batch: Any, view: BrokerView) -> None:
        self._rows += batch.num_rows
        if self._action is BatchAction.SKIP:
            return
        for piece in pieces(batch):
            self._add_piece(piece, view)

    def _add_piece(self, piece: Any, view: BrokerView) -> None:
        assert self._packer is not None and self._sender is not None
        rows = rows_of(piece, self._columns, time.time_ns() // 1_000_000, self._encode)
        topics, topic_of = topics_of(rows, self._options.topic)
        if not self._counts.keys() >= set(topics):
            view.run(lambda cluster: self._count_partitions(cluster, topics))
        partitions = choose_partitions(rows, topics, topic_of, self._counts, self._partitioner)
        order, groups = grouped(topics, topic_of, partitions)
        sender, full = self._sender, list(self._packer.add(rows.in_order(order), groups))
        if full:
            view.run(lambda _: sender.put(full))

    # On the client's event loop.

    async def _count_partitions(self, cluster: Cluster, topics: Iterable[str]) -> None:
        for topic in topics:
            # auto.create.topics.enable of the broker decides, as with any producer.
            self._counts[topic] = len((await cluster.topic(topic, allow_auto_create=True)).partitions)

    async def _open(self, cluster: Cluster) -> None:
        identity, transactional_id = await self._identify(cluster)
        if identity is None:
            return
        options = self._options
        self._packer = Packer(identity, options.compression, options.batch_bytes)
        self._sender = BatchSender(
            cluster, identity, timeout_s=options.delivery_timeout_s, transactional_id=transactional_id
        )

    async def _identify(self, cluster: Cluster) -> tuple[ProducerIdentity | None, str | None]:
        """The producer id and transactional id to write with; None if the batch is skipped."""
        info = self._info
        if info is None:
            return await cluster.retry(lambda: _new_identity(cluster)), None
        if info.is_recorded:
            marker = await BrokerLedger(cluster, info.name).read()
            in_doubt = self._options.in_doubt
            self._action = batch_action(marker, info.batch, may_be_first=info.may_be_first, in_doubt=in_doubt)
            if self._action is BatchAction.SKIP:
                return None, None
            name = process_pool().take(info.name, info.batch, marker)
        else:
            # No later batch has this name, so the id is not kept for reuse.
            name = process_pool().new(info.name)
        timeout_ms = self._options.transaction_timeout_ms
        if timeout_ms is None:
            identity = await init_producer_id_at_most(cluster, name, TRANSACTION_TIMEOUT_MS)
        else:
            identity = await init_producer_id(cluster, name, timeout_ms)
        self._part = Part(name, identity.producer_id, identity.producer_epoch)
        return identity, name

    async def _finish(self, cluster: Cluster) -> None:
        if self._packer is not None and self._sender is not None:
            await self._sender.put(list(self._packer.finish()))
            await self._sender.flush()
            await self._sender.close()

    async def _abort(self, cluster: Cluster) -> None:
        """Abort the transaction, which would block readers; if that fails, its timeout aborts it."""
        if self._sender is not None:
            await self._sender.close()
        if self._part is not None and self._info is not None:
            try:
                async with asyncio.timeout(ABORT_TIMEOUT_S):
                    await abort_parts(BrokerLedger(cluster, self._info.name), [self._part])
            except (ClientError, TimeoutError):
                pass


async def _new_identity(cluster: Cluster) -> ProducerIdentity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answer = await cluster.send_to_any(request, InitProducerIdResponse)
    check(answer.error_code, "getting a producer id")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def combined(messages: Iterable[TaskCommitMessage]) -> WrittenBatch | None:
    """The combined result of all tasks; None if there is nothing to commit."""
    found = [message for message in messages if message.info is not None]
    if not found or found[0].info is None:
        return None
    info = found[0].info
    return WrittenBatch(
        info.batch,
        sum(message.rows for message in found),
        tuple(message.part for message in found if message.part is not None),
        any(message.has_skipped for message in found),
        info.may_be_first,
        info.is_sequential,
    )
