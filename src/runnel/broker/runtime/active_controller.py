"""The active controller: decides about metadata while this node leads the quorum, in one epoch.

    decide → replay into the image ahead → append → committed and applied → answer

Changes are decided one after the other, each seeing those before it, but share the fdatasync and the round
trip to the other voters. When this node no longer leads, the image ahead is dropped, and the callers of
changes that are not committed get NotController: the next controller may have the records, or not.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.controller.image import MetadataImage
from runnel.controller.record_versions import record_version
from runnel.controller.result import ControllerResult
from runnel.controller.steps import Steps
from runnel.model.errors import ApiError, ErrorCode, NotController
from runnel.schemas.metadata import MetadataRecord, PartitionChangeRecord, encode_metadata_record

if TYPE_CHECKING:
    from runnel.broker.runtime.metadata_log import MetadataLog

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of a change, as in Kafka, where it is the fetch size of followers."""
BATCH_OVERHEAD_BYTES = 100
"""An upper bound of the overhead of a batch."""

RECORDS_PER_STEP = 1_000
"""Records that are encoded in one step, some 5 ms."""
ATTEMPTS_MAX = 3
"""How often a large change is encoded in steps, if others are made meanwhile."""

Reply = TypeVar("Reply")
Decide = Callable[[MetadataImage], ControllerResult[Reply]]


class Change:
    """A batch that is in the log and not applied yet."""

    __slots__ = ("base_offset", "done", "end_offset", "records", "size_bytes")

    def __init__(
        self, base_offset: int, end_offset: int, records: list[MetadataRecord], size_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.records = records
        self.size_bytes = size_bytes
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The caller may have been cancelled; an exception that is not retrieved is not an error of its own.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())


class ActiveController:
    """The decisions of one controller epoch."""

    def __init__(self, metadata: "MetadataLog", epoch: int) -> None:
        self.epoch = epoch
        self._metadata = metadata
        segment_bytes = metadata.settings.int("metadata.log.segment.bytes")
        self._batch_bytes_max = min(BATCH_BYTES_MAX, segment_bytes) - BATCH_OVERHEAD_BYTES
        self._ahead = metadata.image.copy()
        """The image after all records in the log."""
        self._pending: deque[Change] = deque()
        self._is_active = True

    @property
    def image(self) -> MetadataImage:
        """The image ahead: to be read by decisions only, as it is not committed."""
        return self._ahead

    @property
    def has_pending(self) -> bool:
        """Are there changes that are not committed yet?"""
        return bool(self._pending)

    @property
    def pending_count(self) -> int:
        """The number of changes that are not committed yet."""
        return len(self._pending)

    async def change(self, decide: "Decide[Reply]") -> Reply:
        """Decide against the image ahead and carry it out; returns when that is committed and applied.

        Raises what `decide` raises, POLICY_VIOLATION for more records than one batch can hold,
        KAFKA_STORAGE_ERROR if they cannot be written, BadMetadata if they cannot be replayed, and
        NotController if this node no longer leads.
        """
        self._check_active()
        decision = decide(self._ahead)
        batch: bytearray | None = None
        if len(decision.records) > RECORDS_PER_STEP:
            decision, batch = await self._encoded_ahead(decide, decision)
        if decision.records:
            pending = self.append(decision.records, batch)
        elif self._pending:
            # The response may depend on a change that is not committed yet: it must not be sent before.
            pending = self._pending[-1]
        else:
            return decision.response
        await asyncio.shield(pending.done)
        return decision.response

    async def _encoded_ahead(
        self, decide: "Decide[Reply]", decision: ControllerResult[Reply]
    ) -> tuple[ControllerResult[Reply], bytearray | None]:
        """A large decision and its batch, encoded while others are served; decided again after other changes.

        With very many of those, it is encoded when it is appended, in one step.
        """
        quorum = self._metadata.quorum
        for _ in range(ATTEMPTS_MAX):
            end_offset = quorum.end_offset
            batch = await self._encode_in_steps(decision.records)
            self._check_active()
            if quorum.end_offset == end_offset:
                return decision, batch
            decision = decide(self._ahead)
            if len(decision.records) <= RECORDS_PER_STEP:
                break
        return decision, None

    async def change_in_steps(self, begin: "Callable[[MetadataImage], Steps[Reply]]") -> Reply:
        """Carry out a decision over many partitions step by step; other changes are decided in between.

        Returns when the last step is committed and applied. Raises as `change`.
        """
        self._check_active()
        steps = begin(self._ahead)
        last: Change | None = None
        try:
            records = next(steps)
            while True:
                if records:
                    last = self.append(records)
                await asyncio.sleep(0)
                self._check_active()
                records = steps.send(self._ahead)
        except StopIteration as end:
            response: Reply = end.value
        finally:
            steps.close()
        if last is None and self._pending:
            last = self._pending[-1]
        if last is not None:
            await asyncio.shield(last.done)
        return response

    def _check_active(self) -> None:
        if not self._is_active:
            raise NotController("another node was elected")

    def records_at(self, offset: int) -> Change | None:
        """The own change that begins at this offset of the log, if there is one."""
        if self._pending and self._pending[0].base_offset == offset:
            return self._pending[0]
        return None

    def applied(self, end_offset: int) -> None:
        """Everything below `end_offset` is committed and applied: answer."""
        while self._pending and self._pending[0].end_offset <= end_offset:
            change = self._pending.popleft()
            if not change.done.done():
                change.done.set_result(None)

    def resign(self, error: Exception) -> None:
        """This node no longer leads: fail pending changes, and refuse further ones."""
        self._is_active = False
        for change in self._pending:
            if not change.done.done():
                change.done.set_exception(error)
        self._pending.clear()

    def append(self, records: list[MetadataRecord], batch: bytearray | None = None) -> Change:
        """Write records without waiting for their commit. Raises as `change`.

        `batch` if they are encoded already.
        """
        quorum = self._metadata.quorum
        base_offset = quorum.end_offset
        elected = _elections(self._ahead, records)
        try:
            # First, because no start could replay a log with records that contradict those before them.
            self._ahead.replay_batch(records, base_offset + len(records))
            if batch is None:
                batch = self._batch_of(self._encode(records))
            end_offset = quorum.append(batch, self.epoch)
        except Exception:
            self._ahead = self._image_with_pending()
            raise
        assert end_offset == base_offset + len(records), "the quorum appended something in between"
        events = self._metadata.events
        events.leader_elections += elected[0]
        events.unclean_elections += elected[1]
        change = Change(base_offset, end_offset, records, len(batch))
        self._pending.append(change)
        return change

    async def _encode_in_steps(self, records: list[MetadataRecord]) -> bytearray:
        encoded: list[Record] = []
        for start in range(0, len(records), RECORDS_PER_STEP):
            await asyncio.sleep(0)
            encoded += self._encode(records[start : start + RECORDS_PER_STEP])
        await asyncio.sleep(0)
        batch = self._batch_of(encoded)
        await asyncio.sleep(0)
        return batch

    def _encode(self, records: list[MetadataRecord]) -> list[Record]:
        level, now_ms = self._ahead.metadata_level, self._metadata.clock.now_ms()
        return [
            Record(0, now_ms, None, encode_metadata_record(record, record_version(record, level)))
            for record in records
        ]

    def _batch_of(self, records: list[Record]) -> bytearray:
        batch = build_batch(records)
        if len(batch) > self._batch_bytes_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"this change takes {len(batch)} bytes of metadata, a batch holds {self._batch_bytes_max} "
                "(metadata.log.segment.bytes): make it in several requests",
            )
        return batch

    def _image_with_pending(self) -> MetadataImage:
        """The image after all records that are in the log."""
        image = self._metadata.image.copy()
        for change in self._pending:
            if change.end_offset > image.version:
                image.replay_batch(change.records, change.end_offset)
        return image


def _elections(image: MetadataImage, records: list[MetadataRecord]) -> tuple[int, int]:
    """How many leaders the records elect, and how many of these may lack committed records."""
    elected = unclean = 0
    for record in records:
        if type(record) is PartitionChangeRecord and record.leader >= 0:
            topic = image.topics_by_id.get(record.topic_id)
            if topic is None or record.partition_id >= len(topic.partitions):
                continue
            state = topic.partitions[record.partition_id]
            elected += record.leader != state.leader
            unclean += record.leader not in state.isr and record.leader not in state.eligible
    return elected, unclean
