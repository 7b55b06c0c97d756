"""Batches as a broker sends them, damaged ones included, which a client would refuse."""

import time
from collections.abc import Iterator

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.facts import CHECKSUM, GONE, UNREADABLE, BatchFact, Stretch, Tail, facts_of
from runnel.pipelines.audit.pieces import BrokerPiece
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import PipelineError

FETCH_BYTES = 4 * 1024 * 1024
FETCH_BYTES_MAX = 256 * 1024 * 1024
"""No batch is larger; if nothing can be read with this, nothing can be read."""
EMPTY_ANSWERS_TO_BELIEVE = 3
PATIENCE_S = 30.0
"""How long a broker may answer with less than it said that it has, until it is believed that it is gone."""
_WAIT_MS = 200
_PAUSE_S = 0.2
_SPOILT = frozenset(
    error.code
    for error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""What a broker answers when it cannot read its own files."""


def read_broker_piece(bootstrap: str, piece: BrokerPiece) -> Iterator[BatchFact]:
    """The facts of all batches that begin in a piece, in the order of the log."""
    with BrokerView(bootstrap, client_id="runnel-audit") as broker:
        yield from _PieceReader(broker, piece).facts()


class _PieceReader:
    """One piece while it is read."""

    def __init__(self, broker: BrokerView, piece: BrokerPiece) -> None:
        self._broker = broker
        self._piece = piece
        self._partition = TopicPartition(piece.topic, piece.partition)
        self._offset = piece.start
        self._seen = -1
        """The last batch that was told, by its base offset."""
        self._max_bytes = FETCH_BYTES
        self._empty_answers = 0
        self._deadline = time.monotonic() + PATIENCE_S
        self._position = 0
        """Counts bytes, so that facts can be put back into their order."""

    def facts(self) -> Iterator[BatchFact]:
        piece = self._piece
        while self._offset < piece.end:
            view, is_throttled = self._fetch(self._offset)
            if view.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
                yield from self._gone()
            elif view.error_code in _SPOILT:
                yield self._search()
            elif not view.records:
                if self._is_over(view, is_throttled):
                    return
            else:
                self._empty_answers = 0
                self._deadline = time.monotonic() + PATIENCE_S
                yield from self._read(memoryview(view.records))

    def _is_over(self, view: PartitionData, is_throttled: bool) -> bool:
        """Does an empty answer mean that nothing follows?"""
        if is_throttled:
            if not self._waited():
                raise PipelineError(f"reading {self._partition}: the broker throttles this client for good")
            return False
        if view.high_watermark < self._piece.end:
            # A leader that has just been elected may not know yet how far its followers are.
            return not self._waited()
        self._empty_answers += 1
        return self._empty_answers >= EMPTY_ANSWERS_TO_BELIEVE

    def _waited(self) -> bool:
        """Wait a moment; False if there was nothing for too long."""
        if time.monotonic() >= self._deadline:
            return False
        time.sleep(_PAUSE_S)
        return True

    def _read(self, records: memoryview) -> Iterator[BatchFact]:
        facts = list(facts_of(self._stretch(records), self._offset))
        self._position += len(records)
        fresh = self._fresh(facts)
        for index, fact in enumerate(fresh):
            if fact.base_offset >= self._piece.end and not _is_misplaced(fresh, index):
                # It belongs to the next piece, or came after the audit began.
                self._offset = self._piece.end
                return
            if fact.base_offset >= self._piece.start or self._piece.is_first:
                yield fact
            self._pass(fact)
        if fresh:
            self._max_bytes = FETCH_BYTES
        elif (
            facts
            and facts[-1].problem == CHECKSUM
            and self._offset <= facts[-1].last_offset < self._piece.end
        ):
            # Nothing is behind the damaged batch: it is believed that it reaches as far as it says.
            self._offset = facts[-1].last_offset + 1
        elif self._max_bytes < FETCH_BYTES_MAX:
            self._max_bytes *= 4
        else:
            yield self._search()

    def _fresh(self, facts: list[BatchFact]) -> list[BatchFact]:
        """Without those at the head that came with the answer before, or stand before what was asked for."""
        first = 0
        while first < len(facts) and facts[first].problem != UNREADABLE:
            fact = facts[first]
            is_before = fact.problem is None and fact.last_offset < self._offset
            if fact.base_offset > self._seen and not is_before:
                break
            first += 1
        return facts[first:]

    def _pass(self, fact: BatchFact) -> None:
        """Go on behind a batch: one that is damaged may say anything about its end."""
        if fact.problem == CHECKSUM:
            self._offset = max(self._offset, fact.base_offset + 1)
        elif fact.base_offset < self._piece.end:
            self._offset = max(self._offset, fact.last_offset + 1)
        else:
            self._offset += fact.last_offset - fact.base_offset + 1
        self._seen = max(self._seen, fact.base_offset if fact.base_offset < self._piece.end else -1)

    def _search(self) -> BatchFact:
        """Nothing can be read here: find the next offset at which the broker has a batch."""
        first, step, found = self._offset, 1, self._piece.end
        while first + step < self._piece.end:
            view, _ = self._fetch(first + step)
            if not view.error_code and view.records:
                facts = facts_of(self._stretch(memoryview(view.records)), first + step)
                sound = [
                    fact.base_offset for fact in facts if fact.problem is None and fact.base_offset > first
                ]
                if sound:
                    found = min(sound[0], self._piece.end)
                    break
            step *= 2
        self._offset = found
        return self._fact(first, found - 1, UNREADABLE)

    def _stretch(self, records: memoryview) -> Stretch:
        piece = self._piece
        return Stretch(piece.topic, piece.partition, piece.start, self._position, records, Tail.GOES_ON)

    def _gone(self) -> Iterator[BatchFact]:
        """The log begins later now, or ends before what was said: retention, or a truncation."""
        first = self._broker.earliest_offsets([self._partition])[self._partition]
        last = self._broker.latest_offsets([self._partition])[self._partition]
        if first <= self._offset <= last and self._waited():
            # Both were true, one a moment after the other: the log grew, or has another leader.
            return
        if first > self._offset:
            end = min(first, self._piece.end)
            yield self._fact(self._offset, end - 1, GONE)
            self._offset = end
        else:
            self._offset = self._piece.end

    def _fact(self, first: int, last: int, problem: str) -> BatchFact:
        piece = self._piece
        self._position += 1
        return BatchFact(
            piece.topic, piece.partition, piece.start, self._position, first, last, 0, problem=problem
        )

    def _fetch(self, offset: int) -> tuple[PartitionData, bool]:
        return self._broker.run(lambda cluster: _fetch(cluster, self._partition, offset, self._max_bytes))


def _is_misplaced(facts: list[BatchFact], index: int) -> bool:
    """Does the log go back behind this batch? Then only its offset is wrong."""
    return index + 1 < len(facts) and facts[index + 1].base_offset < facts[index].base_offset


async def _fetch(
    cluster: Cluster, partition: TopicPartition, offset: int, max_bytes: int
) -> tuple[PartitionData, bool]:
    """What the leader answers, its refusals to read included, and whether it throttles us.

    What a retry mends is tried again.
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
        if view.error_code not in _SPOILT and view.error_code != ErrorCode.OFFSET_OUT_OF_RANGE.code:
            check(view.error_code, f"reading {partition} from offset {offset}")
        return view, answer.throttle_time_ms > 0

    return await cluster.retry(ask, lambda: cluster.invalidate_topic(partition.topic))
