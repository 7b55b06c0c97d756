"""What Spark calls: writers for a batch and for a stream, in its tasks and on behalf of its driver.

`write` runs in a task; `commit` and `abort` run in another process beside the driver, on another object.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
    Written,
    abort_batch,
    abort_parts,
    commit_batch,
    commit_parts,
)
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.options import SinkOptions
from runnel.pipelines.sink.task import Target, TaskMessage, TaskWriter, connected, summed_up

Messages = Sequence[WriterCommitMessage | None]
Action = Callable[[Ledger[ProducerIdentity], Written, bool], Awaitable[None]]

STRAGGLER_LOOKS = 6
STRAGGLER_WAIT_S = 1.0
"""Spark does not wait for the tasks that it kills, before it calls abort."""
ABORT_OUTAGE_MAX_S = 10.0
"""What is not aborted by then is aborted by the next batch, or by its transaction timeout."""
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once; all of it becomes visible, or nothing."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = record_columns(schema, options.topic)
        self._target = _batch_target(options) if options.is_exactly_once else None

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return TaskWriter(self._options, self._columns, self._target, _task_number()).write(iterator)

    def commit(self, messages: Messages) -> None:
        _commit(self._options, messages)

    def abort(self, messages: Messages) -> None:
        # With no message at all, a task may have been killed inside its transaction.
        nothing = TaskMessage(self._target, 0, None, has_skipped=False)
        _abort(self._options, [*messages, nothing])


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query; a batch that Spark runs again is not there twice."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = record_columns(schema, options.topic)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        target = _streaming_target(self._options) if self._options.is_exactly_once else None
        return TaskWriter(self._options, self._columns, target, _task_number()).write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        _commit(self._options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        _abort(self._options, messages)


def _batch_target(options: SinkOptions) -> Target:
    if options.application is None:
        name = f"{options.prefix}job-{secrets.token_hex(8)}"
        return Target(name, 0, may_begin=True, is_recorded=False)
    name = options.prefix + options.application
    if options.topic is not None:
        # A program may write one version to several topics: each has a note of its own.
        name += f"@{options.topic}"
    may_begin = options.first_version is None or options.version == options.first_version
    return Target(name, options.version, may_begin=may_begin, is_recorded=True, is_in_step=False)


def _streaming_target(options: SinkOptions) -> Target:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if query is None or batch is None:
        raise PipelineError(
            f"Spark does not pass its tasks {QUERY_ID} and {BATCH_ID}, which exactly-once needs: "
            "use Spark 4.2, or the option delivery=at-least-once"
        )
    return Target(options.prefix + query, int(batch), may_begin=int(batch) == 0, is_recorded=True)


def _task_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _commit(options: SinkOptions, messages: Messages) -> None:
    async def commit(ledger: Ledger[ProducerIdentity], written: Written, is_recorded: bool) -> None:
        if is_recorded:
            await commit_batch(ledger, written, options.in_doubt)
        else:
            await commit_parts(ledger, written)

    _on_ledger(options, messages, commit, options.delivery_timeout_s)


def _abort(options: SinkOptions, messages: Messages) -> None:
    async def abort(ledger: Ledger[ProducerIdentity], written: Written, is_recorded: bool) -> None:
        if is_recorded:
            await abort_batch(ledger, written.batch, written.parts)
        else:
            await _abort_stragglers(ledger)

    _on_ledger(options, messages, abort, min(ABORT_OUTAGE_MAX_S, options.delivery_timeout_s))


async def _abort_stragglers(ledger: Ledger[ProducerIdentity]) -> None:
    """Undo all that a write has open, and what tasks open that do not know yet that they are killed.

    Nobody would come back to it later, and readers of committed records would wait until it times out.
    """
    for look in range(STRAGGLER_LOOKS):
        if look:
            await asyncio.sleep(STRAGGLER_WAIT_S)
        await abort_parts(ledger, await ledger.others([]))


def _on_ledger(options: SinkOptions, messages: Messages, action: Action, outage_max_s: float) -> None:
    """Do what the tasks' messages ask for; those of tasks that failed are None."""
    received = [message for message in messages if isinstance(message, TaskMessage)]
    written = summed_up(received)
    if written is None:
        return
    target = next(message.target for message in received if message.target is not None)

    async def act(cluster: Cluster) -> None:
        await action(BrokerLedger(cluster, target.name), written, target.is_recorded)

    with connected(options, outage_max_s) as view:
        view.run(act)
