"""The disk as the broker sees it: one log per partition, and one shared way to make records durable."""

from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from runnel.log.producers import Guard
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig

Result = TypeVar("Result", covariant=True)


class BlockingRead(Protocol[Result]):
    """A read of a log's files that may wait for the disk, to be run by `Disk.run_blocking`."""

    def run(self) -> None:
        """Read, in any thread. It works on a view of the log, so that the log may change meanwhile."""
        ...

    def finish(self) -> Result:
        """On the event loop, after `run`: the result. Raises ApiError if the files could not be read."""
        ...


class NotResident(Exception):
    """What was asked for is not in the page cache, or an index is not in memory: reading it would block.

    The caller has `Disk.run_blocking` run `load`, and reads again with `may_block`.
    """

    def __init__(self, load: BlockingRead[None]) -> None:
        super().__init__("not in the page cache")
        self.load = load


class Origin(Enum):
    """Who hands records to a log; only clients are checked for what clients may not do."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICA = "replica"


@dataclass(slots=True)
class Staged:
    """Where a batch will stand once its log has written it."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 when the producer's own timestamps were kept."""
    log_start_offset: int
    duplicate: bool = False
    """The producer sent this batch before: nothing was staged, and the offsets are the first time's."""


class OpenFile(Protocol):
    """A file that stays open for as long as somebody holds it."""

    def fileno(self) -> int: ...

    def is_resident(self, position: int, length: int, /) -> bool:
        """Can these bytes be read or sent without waiting for the disk, as far as a probe can tell?"""
        ...


@dataclass(slots=True)
class FileSlice:
    """A stretch of a segment file that goes to a socket without passing through Python."""

    file: OpenFile
    position: int
    length: int


@dataclass(slots=True)
class Slice:
    """Whole batches, ready to send."""

    parts: list[bytes | memoryview | FileSlice]
    size_bytes: int
    end_offset: int = 0
    """The offset behind the last batch."""


@dataclass(slots=True)
class TimestampedOffset:
    """An offset found by time, with the record's timestamp and the epoch it was written in."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(slots=True)
class ProducerView:
    """What a log knows of one idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionLog(Protocol):
    """The records of one partition on this node."""

    config: LogConfig

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The next offset to be given out; staged batches count."""
        ...

    @property
    def written_offset(self) -> int:
        """Everything below stands in the file; it survives the process."""
        ...

    @property
    def durable_offset(self) -> int:
        """Everything below survives a power cut."""
        ...

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this log was informed; its start after opening.

        Nothing at or above it is expired, compacted or deleted.
        """
        ...

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed. Called by the replicated log only, which decides it."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Everything below is committed and belongs to no transaction that could still be aborted."""
        ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def failure(self) -> str | None:
        """Why nothing may be written; at start, what is damaged."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The newest epoch that this log has a record of, or -1."""
        ...

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader took over at the end of this log."""
        ...

    def configure(self, config: LogConfig) -> None: ...

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Staged:
        """Check a batch, give it its offsets and line it up for writing.

        The memory is borrowed until `write_staged` returns. Raises ApiError; nothing is staged then.
        """
        ...

    def stage_all(
        self, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
    ) -> list[Staged | ApiError]:
        """`stage` for several batches of clients; a batch that is refused does not affect the others."""
        ...

    def write_staged(self) -> None:
        """Write all staged batches in one call; if the disk refuses, unstage all and raise StorageFailed."""
        ...

    def write_later(self, done: Callable[[ApiError | None], None]) -> bool:
        """Let a thread write what is staged; False, and nothing is done, if it is too little for that.

        The memory stays borrowed until `done` is told that all is written, or why all was unstaged.
        """
        ...

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool = True
    ) -> Slice:
        """Whole batches from the one that holds `offset`, below `end_offset`. Else OFFSET_OUT_OF_RANGE.

        With `at_least_one` the first batch comes even if it alone is larger than `max_bytes`. Raises
        NotResident unless `may_block`. The bytes behind a FileSlice may be cold all the same: its sender
        probes them.
        """
        ...

    def read_batches(
        self, offset: int, max_bytes: int, end_offset: int
    ) -> BlockingRead[Sequence[memoryview]]:
        """Batches from the one that holds `offset`, at least one if any begins below `end_offset`."""
        ...

    def batches(self, offset: int, end_offset: int) -> Iterator[memoryview]:
        """Batch by batch from `offset`: how coordinators load themselves."""
        ...

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        """The first record below `end_offset` whose timestamp is at least this."""
        ...

    def find_max_timestamp(self, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        """The first of the records below `end_offset` that have the largest timestamp."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampedOffset | None:
        """`find_timestamp` at once, which may block."""
        ...

    def offset_of_max_timestamp(self, end_offset: int) -> TimestampedOffset | None:
        """`find_max_timestamp` at once, which may block."""
        ...

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the asked one, or (-1, -1)."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that `offset` was written in, or -1."""
        ...

    def delete_records_before(
        self, offset: int, done: Callable[[ApiError | None], None] = lambda error: None
    ) -> None:
        """Let the log begin at `offset`, and drop whole segments below it.

        `done` is called on the event loop once that is durable and visible, or with the reason why it could
        not be stored. Raises OFFSET_OUT_OF_RANGE above the high watermark.
        """
        ...

    def truncate_to(self, offset: int) -> None:
        """Take out every batch that does not end below `offset`: a follower agrees with its leader."""
        ...

    def producers(self) -> Iterable[ProducerView]: ...

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[tuple[int, int]]:
        """(producer id, first offset), in order, of the aborted transactions that readers of these meet.

        Raises NotResident unless `may_block`.
        """
        ...

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Is the next batch of this producer part of a transaction that it has begun here?"""
        ...

    def guard_transaction(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int
    ) -> Guard:
        """Stand guard while the coordinator is asked whether this producer may begin a transaction here."""
        ...

    def check_guard(self, guard: Guard, base_sequence: int, *, needs_start: bool) -> None:
        """Refuse to begin a transaction unless the guard still stands: no other one ended meanwhile.

        `needs_start`: a producer of which nothing is known must begin at sequence 0.
        """
        ...

    def check_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Refuse the end of a transaction that comes late, or twice."""
        ...


class Disk(Protocol):
    """All logs of this node."""

    def open_log(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """The log of a partition, made if it is not there. A folder left by another topic id is replaced."""
        ...

    def remove_log(self, partition: TopicPartition) -> None:
        """Forget the log now, free its files later."""
        ...

    def sync(self, log: PartitionLog) -> "Future[int]":
        """Group commit: resolves with the durable offset once an fdatasync begun after this call is done."""
        ...

    def run_blocking(self, read: BlockingRead[Result]) -> "Future[Result]":
        """Run a read in a thread; the future has its result, or the ApiError that it came to."""
        ...

    def known_logs(self) -> Iterable[TopicPartition]: ...

    def directory_id(self) -> bytes: ...

    def directory_path(self) -> str: ...

    def space_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        ...

    def upkeep(self, now_ms: int) -> None:
        """Age rolls, retention, timed flushes, compaction: decide what is due and start it; never blocks."""
        ...
