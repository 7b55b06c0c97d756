"""The batch and stream writers that Spark calls, in tasks and on behalf of the driver.

`write` runs in a task; `commit` and `abort` run in another process beside the driver, on another object.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from runnel.client.accumulator import ProducerIdentity
from runnel.client.cluster import Cluster
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.columns import record_columns
from runnel.pipelines.sink.decision import (
    Ledger,
    WrittenBatch,
    abort_batch,
    abort_parts,
    commit_batch,
    commit_parts,
)
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.options import SinkOptions
from runnel.pipelines.sink.task import TaskCommitMessage, TaskWriter, WriteInfo, combined, connected

Messages = Sequence[WriterCommitMessage | None]
Action = Callable[[Ledger[ProducerIdentity], WrittenBatch, bool], Awaitable[None]]

STRAGGLER_SCANS = 6
STRAGGLER_WAIT_S = 1.0
"""Spark calls abort without waiting for the tasks that it kills."""
ABORT_OUTAGE_MAX_S = 10.0
"""Transactions not aborted by then are aborted by the next batch or by their timeout."""
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame atomically."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options = with_schema(options)
        self._columns = record_columns(schema, options.topic, encodes_values=options.values is not None)
        self._info = _batch_info(options) if options.is_exactly_once else None

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return TaskWriter(self._options, self._columns, self._info, _task_number()).write(iterator)

    def commit(self, messages: Messages) -> None:
        _commit(self._options, messages)

    def abort(self, messages: Messages) -> None:
        # Without any message, a task may have been killed inside its transaction.
        nothing = TaskCommitMessage(self._info, 0, None, has_skipped=False)
        _abort(self._options, [*messages, nothing])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query; replayed batches are not duplicated."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options = with_schema(options)
        self._columns = record_columns(schema, options.topic, encodes_values=options.values is not None)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        info = _streaming_info(self._options) if self._options.is_exactly_once else None
        return TaskWriter(self._options, self._columns, info, _task_number()).write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _commit(self._options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        _abort(self._options, messages)


def with_schema(options: SinkOptions) -> SinkOptions:
    """The options with the schema that they name in a registry. Raises BadOption, SchemaUnavailable."""
    if options.values is None:
        return options
    from runnel.pipelines.registered.decoding import looked_up

    return replace(options, values=looked_up(options.values))


def _batch_info(options: SinkOptions) -> WriteInfo:
    if options.application is None:
        name = f"{options.prefix}job-{secrets.token_hex(8)}"
        return WriteInfo(name, 0, may_be_first=True, is_recorded=False)
    name = options.prefix + options.application
    if options.topic is not None:
        # A program may write one version to several topics: each has its own commit marker.
        name += f"@{options.topic}"
    may_be_first = options.first_version is None or options.version == options.first_version
    return WriteInfo(name, options.version, may_be_first=may_be_first, is_recorded=True, is_sequential=False)


def _streaming_info(options: SinkOptions) -> WriteInfo:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if query is None or batch is None:
        raise PipelineError(
            f"Spark does not pass its tasks {QUERY_ID} and {BATCH_ID}, which exactly-once needs: "
            "use Spark 4.2, or the option delivery=at-least-once"
        )
    return WriteInfo(options.prefix + query, int(batch), may_be_first=int(batch) == 0, is_recorded=True)


def _task_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _commit(options: SinkOptions, messages: Messages) -> None:
    async def commit(ledger: Ledger[ProducerIdentity], written: WrittenBatch, is_recorded: bool) -> None:
        if is_recorded:
            await commit_batch(ledger, written, options.in_doubt)
        else:
            await commit_parts(ledger, written)

    _on_ledger(options, messages, commit, options.delivery_timeout_s)


def _abort(options: SinkOptions, messages: Messages) -> None:
    async def abort(ledger: Ledger[ProducerIdentity], written: WrittenBatch, is_recorded: bool) -> None:
        if is_recorded:
            await abort_batch(ledger, written.batch, written.parts)
        else:
            await _abort_stragglers(ledger)

    _on_ledger(options, messages, abort, min(ABORT_OUTAGE_MAX_S, options.delivery_timeout_s))


async def _abort_stragglers(ledger: Ledger[ProducerIdentity]) -> None:
    """Abort all open transactions of a write, including those that killed tasks open late.

    No later batch would abort them, and read_committed consumers would block until the timeout.
    """
    for scan in range(STRAGGLER_SCANS):
        if scan:
            await asyncio.sleep(STRAGGLER_WAIT_S)
        await abort_parts(ledger, await ledger.other_open_parts([]))


def _on_ledger(options: SinkOptions, messages: Messages, action: Action, outage_max_s: float) -> None:
    """Run an action for the messages of the tasks; the message of a failed task is None."""
    received = [message for message in messages if isinstance(message, TaskCommitMessage)]
    written = combined(received)
    if written is None:
        return
    info = next(message.info for message in received if message.info is not None)

    async def act(cluster: Cluster) -> None:
        await action(BrokerLedger(cluster, info.name), written, info.is_recorded)

    with connected(options, outage_max_s) as view:
        view.run(act)
