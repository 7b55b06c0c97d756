"""What one task does: take rows, encode them, and see them into the brokers' logs."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError, check
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.sink.columns import Columns
from runnel.pipelines.sink.decision import Part, Verdict, Written, abort_parts, judge
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.names import own_pool
from runnel.pipelines.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions
from runnel.pipelines.sink.packing import Packer
from runnel.pipelines.sink.partitioning import Turns, choose_partitions, grouped, topics_of
from runnel.pipelines.sink.rows import pieces, rows_of
from runnel.pipelines.sink.sending import BatchSender
from runnel.pipelines.sink.timeouts import init_producer_id, init_producer_id_at_most

ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """Which write a task is part of."""

    name: str
    """Of the query, or of the program that numbers its writes, or of this one write."""
    batch: int
    may_begin: bool
    is_recorded: bool
    """Is it recorded in a note, so that a replay is recognised?"""
    is_in_step: bool = True
    """Does the next batch begin only when this one was carried out?"""


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """What a task reports to the driver."""

    target: Target | None
    rows: int
    part: Part | None
    has_skipped: bool


def connected(options: SinkOptions, outage_max_s: float) -> BrokerView:
    """The brokers, for one task, commit or abort; an outage of at most this length only delays it."""
    return BrokerView(
        options.bootstrap_servers,
        client_id=options.client_id,
        api_timeout_s=outage_max_s,
        connect_timeout_s=outage_max_s,
    )


class TaskWriter:
    """One attempt of one task. Without a target it writes at least once, under an identity of its own."""

    def __init__(self, options: SinkOptions, columns: Columns, target: Target | None, number: int) -> None:
        self._options = options
        self._columns = columns
        self._target = target
        self._turns = Turns(options.batch_bytes, number, {})
        self._counts: dict[str, int] = {}
        self._rows = 0
        self._part: Part | None = None
        self._verdict: Verdict | None = None
        self._packer: Packer | None = None
        self._sender: BatchSender | None = None

    def write(self, batches: Iterable[Any]) -> TaskMessage:
        """Write all rows. When this returns they are in the brokers' logs, in a transaction still open."""
        # All rows are taken even if none is written: what feeds us must come to its end, too.
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskMessage(self._target, 0, None, has_skipped=False)
        with connected(self._options, self._options.delivery_timeout_s) as view:
            try:
                view.run(self._open)
                self._take(first, view)
                for batch in filled:
                    self._take(batch, view)
                view.run(self._finish)
            except BaseException:
                view.run(self._give_up)
                raise
        return TaskMessage(self._target, self._rows, self._part, self._verdict is Verdict.SKIP)

    def _take(self, batch: Any, view: BrokerView) -> None:
        self._rows += batch.num_rows
        if self._verdict is Verdict.SKIP:
            return
        for piece in pieces(batch):
            self._take_piece(piece, view)

    def _take_piece(self, piece: Any, view: BrokerView) -> None:
        assert self._packer is not None and self._sender is not None
        rows = rows_of(piece, self._columns, time.time_ns() // 1_000_000)
        topics, topic_of = topics_of(rows, self._options.topic)
        if not self._counts.keys() >= set(topics):
            view.run(lambda cluster: self._count_partitions(cluster, topics))
        partitions = choose_partitions(rows, topics, topic_of, self._counts, self._turns)
        order, groups = grouped(topics, topic_of, partitions)
        sender, full = self._sender, list(self._packer.add(rows.in_order(order), groups))
        if full:
            view.run(lambda _: sender.put(full))

    # On the client's event loop.

    async def _count_partitions(self, cluster: Cluster, topics: Iterable[str]) -> None:
        for topic in topics:
            # Whether this may create the topic is up to the broker, as with any producer.
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
        """As whom to write; None if there is nothing to be written."""
        target = self._target
        if target is None:
            return await cluster.retry(lambda: _new_identity(cluster)), None
        if target.is_recorded:
            note = await BrokerLedger(cluster, target.name).read()
            in_doubt = self._options.in_doubt
            self._verdict = judge(note, target.batch, may_begin=target.may_begin, in_doubt=in_doubt)
            if self._verdict is Verdict.SKIP:
                return None, None
            name = own_pool().take(target.name, target.batch, note)
        else:
            # There is no later batch under this name that could use it again.
            name = own_pool().new(target.name)
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

    async def _give_up(self, cluster: Cluster) -> None:
        """Leave nothing open that readers would wait for; if that fails, the broker ends it in time."""
        if self._sender is not None:
            await self._sender.close()
        if self._part is not None and self._target is not None:
            try:
                async with asyncio.timeout(ABORT_TIMEOUT_S):
                    await abort_parts(BrokerLedger(cluster, self._target.name), [self._part])
            except (ClientError, TimeoutError):
                pass


async def _new_identity(cluster: Cluster) -> ProducerIdentity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answer = await cluster.send_to_any(request, InitProducerIdResponse)
    check(answer.error_code, "getting a producer id")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def summed_up(messages: Iterable[TaskMessage]) -> Written | None:
    """What all tasks of a write report together; None if there is nothing to decide."""
    found = [message for message in messages if message.target is not None]
    if not found or found[0].target is None:
        return None
    target = found[0].target
    return Written(
        target.batch,
        sum(message.rows for message in found),
        tuple(message.part for message in found if message.part is not None),
        any(message.has_skipped for message in found),
        target.may_begin,
        target.is_in_step,
    )
