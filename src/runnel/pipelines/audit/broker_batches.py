"""Reads batches from a broker, including damaged ones that a consumer would reject."""

import time
from collections.abc import Iterator

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.batch_summary import (
    CHECKSUM,
    REMOVED,
    UNREADABLE,
    BatchSummary,
    LogChunk,
    Tail,
    summarize,
)
from runnel.pipelines.audit.splits import OffsetSplit
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import PipelineError

FETCH_BYTES = 4 * 1024 * 1024
FETCH_BYTES_MAX = 256 * 1024 * 1024
"""No batch is larger; if nothing can be read with this, the offset is unreadable."""
EMPTY_RESPONSES_MAX = 3
STALL_TIMEOUT_S = 30.0
"""How long a broker may return less than its end offset before the rest is considered lost."""
_WAIT_MS = 200
_PAUSE_S = 0.2
_READ_ERRORS = frozenset(
    error.code
    for error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""Errors of a broker that cannot read its own files."""


def read_broker_split(
    bootstrap: str, split: OffsetSplit, properties: ClientProperties = NO_PROPERTIES
) -> Iterator[BatchSummary]:
    """The summaries of all batches that start in a split, in log order."""
    with BrokerView(bootstrap, properties=properties, client_id="runnel-audit") as broker:
        yield from _SplitReader(broker, split).summaries()


class _SplitReader:
    """Reads one split."""

    def __init__(self, broker: BrokerView, split: OffsetSplit) -> None:
        self._broker = broker
        self._split = split
        self._partition = TopicPartition(split.topic, split.partition)
        self._offset = split.start
        self._seen = -1
        """Base offset of the last batch returned."""
        self._max_bytes = FETCH_BYTES
        self._empty_responses = 0
        self._deadline = time.monotonic() + STALL_TIMEOUT_S
        self._position = 0
        """Bytes read, which restores the order of summaries after a shuffle."""

    def summaries(self) -> Iterator[BatchSummary]:
        split = self._split
        while self._offset < split.end:
            view, is_throttled = self._fetch(self._offset)
            if view.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
                yield from self._out_of_range()
            elif view.error_code in _READ_ERRORS:
                yield self._find_next_batch()
            elif not view.records:
                if self._is_at_end(view, is_throttled):
                    return
            else:
                self._empty_responses = 0
                self._deadline = time.monotonic() + STALL_TIMEOUT_S
                yield from self._read(memoryview(view.records))

    def _is_at_end(self, view: PartitionData, is_throttled: bool) -> bool:
        """Does an empty response mean the end of the log?"""
        if is_throttled:
            if not self._waited():
                raise PipelineError(f"reading {self._partition}: the broker keeps throttling this client")
            return False
        if view.high_watermark < self._split.end:
            # The high watermark of a new leader may lag.
            return not self._waited()
        self._empty_responses += 1
        return self._empty_responses >= EMPTY_RESPONSES_MAX

    def _waited(self) -> bool:
        """Back off; False after the stall timeout."""
        if time.monotonic() >= self._deadline:
            return False
        time.sleep(_PAUSE_S)
        return True

    def _read(self, records: memoryview) -> Iterator[BatchSummary]:
        summaries = list(summarize(self._log_chunk(records), self._offset))
        self._position += len(records)
        new = self._new_batches(summaries)
        for index, summary in enumerate(new):
            if summary.base_offset >= self._split.end and not _is_misplaced(new, index):
                # It belongs to the next split, or was written after the audit started.
                self._offset = self._split.end
                return
            if summary.base_offset >= self._split.start or self._split.is_first:
                yield summary
            self._advance(summary)
        if new:
            self._max_bytes = FETCH_BYTES
        elif (
            summaries
            and summaries[-1].problem == CHECKSUM
            and self._offset <= summaries[-1].last_offset < self._split.end
        ):
            # Nothing follows the damaged batch: accept the last offset in its header.
            self._offset = summaries[-1].last_offset + 1
        elif self._max_bytes < FETCH_BYTES_MAX:
            self._max_bytes *= 4
        else:
            yield self._find_next_batch()

    def _new_batches(self, summaries: list[BatchSummary]) -> list[BatchSummary]:
        """Drop leading batches that were already returned or end before the fetch offset."""
        first = 0
        while first < len(summaries) and summaries[first].problem != UNREADABLE:
            summary = summaries[first]
            is_before = summary.problem is None and summary.last_offset < self._offset
            if summary.base_offset > self._seen and not is_before:
                break
            first += 1
        return summaries[first:]

    def _advance(self, summary: BatchSummary) -> None:
        """Advance past a batch; the last offset of a damaged one cannot be trusted."""
        if summary.problem == CHECKSUM:
            self._offset = max(self._offset, summary.base_offset + 1)
        elif summary.base_offset < self._split.end:
            self._offset = max(self._offset, summary.last_offset + 1)
        else:
            self._offset += summary.last_offset - summary.base_offset + 1
        self._seen = max(self._seen, summary.base_offset if summary.base_offset < self._split.end else -1)

    def _find_next_batch(self) -> BatchSummary:
        """Find the next readable batch after an unreadable offset."""
        first, step, found = self._offset, 1, self._split.end
        while first + step < self._split.end:
            view, _ = self._fetch(first + step)
            if not view.error_code and view.records:
                summaries = summarize(self._log_chunk(memoryview(view.records)), first + step)
                valid = [
                    summary.base_offset
                    for summary in summaries
                    if summary.problem is None and summary.base_offset > first
                ]
                if valid:
                    found = min(valid[0], self._split.end)
                    break
            step *= 2
        self._offset = found
        return self._summary(first, found - 1, UNREADABLE)

    def _log_chunk(self, records: memoryview) -> LogChunk:
        split = self._split
        return LogChunk(split.topic, split.partition, split.start, self._position, records, Tail.CONTINUES)

    def _out_of_range(self) -> Iterator[BatchSummary]:
        """The log start offset advanced (retention), or the log was truncated."""
        first = self._broker.earliest_offsets([self._partition])[self._partition]
        last = self._broker.latest_offsets([self._partition])[self._partition]
        if first <= self._offset <= last and self._waited():
            # In range by now: the log grew, or the leader changed.
            return
        if first > self._offset:
            end = min(first, self._split.end)
            yield self._summary(self._offset, end - 1, REMOVED)
            self._offset = end
        else:
            self._offset = self._split.end

    def _summary(self, first: int, last: int, problem: str) -> BatchSummary:
        split = self._split
        self._position += 1
        return BatchSummary(
            split.topic, split.partition, split.start, self._position, first, last, 0, problem=problem
        )

    def _fetch(self, offset: int) -> tuple[PartitionData, bool]:
        return self._broker.run(lambda cluster: _fetch(cluster, self._partition, offset, self._max_bytes))


def _is_misplaced(summaries: list[BatchSummary], index: int) -> bool:
    """Does the next batch have a lower offset? Then only the offset of this batch is wrong."""
    return index + 1 < len(summaries) and summaries[index + 1].base_offset < summaries[index].base_offset


async def _fetch(
    cluster: Cluster, partition: TopicPartition, offset: int, max_bytes: int
) -> tuple[PartitionData, bool]:
    """The leader's response, including read errors, and whether it throttled the request.

    Retriable errors are retried.
    """

    async def ask() -> tuple[PartitionData, bool]:
        wanted = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        answer = await cluster.send_to_node(await cluster.leader(partition), request, FetchResponse)
        check(answer.error_code, f"reading {partition}")
        (topic,) = answer.responses
        (view,) = topic.partitions
        if view.error_code not in _READ_ERRORS and view.error_code != ErrorCode.OFFSET_OUT_OF_RANGE.code:
            check(view.error_code, f"reading {partition} from offset {offset}")
        return view, answer.throttle_time_ms > 0

    return await cluster.retry(ask, lambda: cluster.invalidate_topic(partition.topic))
