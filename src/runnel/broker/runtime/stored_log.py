"""The stored records of a partition: reads that never wait for the disk on the event loop, and syncs."""

from asyncio import Future
from collections.abc import Sequence
from typing import TypeVar

from runnel.broker.runtime.promise import Promise, settled
from runnel.model.errors import ApiError, DamagedLog, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.disk import BlockingRead, Disk, NotResident, PartitionLog, Slice, TimestampedOffset

T = TypeVar("T")


class StoredLog:
    """What is stored of one partition; what is not in memory or in the page cache is loaded by a thread."""

    __slots__ = ("_disk", "log", "name")

    def __init__(self, name: TopicPartition, log: PartitionLog, disk: Disk) -> None:
        self.name = name
        self.log = log
        """The log on disk. Other classes may read it, but must not change it or commit records."""
        self._disk = disk

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool = False
    ) -> Slice:
        """Whole batches from the one that holds `offset`, below `end_offset`. Else OFFSET_OUT_OF_RANGE.

        Raises NotResident where that would wait for the disk; the caller has `load` bring it into reach.
        """
        try:
            return self.log.read(
                offset, max_bytes, end_offset, at_least_one=at_least_one, may_block=may_block
            )
        except DamagedLog as error:
            self.damaged(str(error))
            raise

    def damaged(self, reason: str) -> None:
        """Records turned out to be corrupt or missing."""

    def check_damage(self, error: ApiError | None) -> None:
        """A write or a truncation failed with this error."""
        if isinstance(error, DamagedLog):
            self.damaged(str(error))

    def load(self, read: BlockingRead[T]) -> Promise[T]:
        """Run a read that may wait for the disk in a thread."""
        promise: Promise[T] = Promise()

        def done(result: "Future[T]") -> None:
            if result.cancelled():
                promise.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping"))
                return
            error = result.exception()
            if isinstance(error, DamagedLog):
                self.damaged(str(error))
            if error is None:
                promise.resolve(result.result())
            elif isinstance(error, Exception):
                promise.fail(error)
            else:
                raise error

        self._disk.run_blocking(read).add_done_callback(done)
        return promise

    def read_batches(self, offset: int, max_bytes: int) -> Promise[Sequence[memoryview]]:
        """Batches from the one that holds `offset` to the end of the log, for replay; at least one if any."""
        return self.load(self.log.read_batches(offset, max_bytes, self.log.written_offset))

    async def aborted_transactions(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The (producer id, first offset) of aborted transactions that overlap these offsets."""
        try:
            return self.log.aborted_transactions(first_offset, end_offset, may_block=False)
        except NotResident as cold:
            await settled(self.load(cold.load))
            return self.log.aborted_transactions(first_offset, end_offset, may_block=True)

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> Promise[TimestampedOffset | None]:
        """The first record below `end_offset` whose timestamp is at least this."""
        return self.load(self.log.find_timestamp(timestamp_ms, end_offset))

    def find_max_timestamp(self, end_offset: int) -> Promise[TimestampedOffset | None]:
        """The first of the records below `end_offset` that have the largest timestamp."""
        return self.load(self.log.find_max_timestamp(end_offset))

    def make_durable(self) -> Promise[None]:
        """Sync what is written."""
        durable: Promise[None] = Promise()

        def synced(result: "Future[int]") -> None:
            failure = None if result.cancelled() else result.exception()
            if result.cancelled() or failure is not None:
                durable.fail(
                    ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is not durable: {failure}")
                )
            else:
                durable.resolve(None)

        self._disk.sync(self.log).add_done_callback(synced)
        return durable
