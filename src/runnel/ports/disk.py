"""The storage port: one log per partition, and group commit."""

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from runnel.log.idempotency import FoundKeys
from runnel.log.producers import Guard
from runnel.model.errors import ApiError
from runnel.model.ids import SnapshotId, TopicPartition
from runnel.model.log_config import LogConfig

Result = TypeVar("Result", covariant=True)


class BlockingRead(Protocol[Result]):
    """A read of a log's files that may wait for the disk, to be run by `Disk.run_blocking`."""

    def run(self) -> None:
        """Read, in any thread. It uses a snapshot of the log, which may change concurrently."""
        ...

    def finish(self) -> Result:
        """On the event loop, after `run`: the result. Raises ApiError if the files could not be read."""
        ...


class NotResident(Exception):
    """The requested bytes are not in the page cache, or an index is not in memory: reading would block.

    The caller has `Disk.run_blocking` run `load`, and reads again with `may_block`.
    """

    def __init__(self, load: BlockingRead[None], kept_bytes: int = 0) -> None:
        super().__init__("not in the page cache")
        self.load = load
        self.kept_bytes = kept_bytes
        """How many bytes of batches `load` may keep in memory until they are read; the page cache aside."""


class Origin(Enum):
    """Origin of appended records; some checks apply to clients only."""

    CLIENT = "client"
    KEYED = "keyed"
    """A client's record whose idempotency key is new; it is stamped with the time of its append."""
    COORDINATOR = "coordinator"
    REPLICA = "replica"


@dataclass(slots=True)
class Staged:
    """The offsets of a staged batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 if the producer's timestamps are kept."""
    log_start_offset: int
    duplicate: bool = False
    """A duplicate: nothing was staged, and the offsets are those of the original batch."""


class OpenFile(Protocol):
    """A file that stays open while it is referenced."""

    def fileno(self) -> int: ...

    def is_resident(self, position: int, length: int, /) -> bool:
        """True if, according to a probe, these bytes can be read or sent without waiting for the disk."""
        ...


@dataclass(slots=True)
class FileSlice:
    """A range of a segment file that is sent to a socket without being copied to user space."""

    file: OpenFile
    position: int
    length: int


@dataclass(slots=True)
class Slice:
    """Whole batches, ready to send."""

    parts: list[bytes | memoryview | FileSlice]
    size_bytes: int
    end_offset: int = 0
    """The offset after the last batch."""


@dataclass(slots=True)
class TimestampedOffset:
    """An offset found by timestamp, with the record's timestamp and leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(slots=True)
class Verified:
    """The outcome of a verification: everything up to an offset is sound, or what is not."""

    next_offset: int
    size_bytes: int
    """The size of the batches that were verified."""
    damage: str | None = None


@dataclass(slots=True)
class ProducerView:
    """The state of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionLog(Protocol):
    """The log of one partition on this node."""

    config: LogConfig

    on_truncated: Callable[[], None]
    """Called when records were removed from the end: by truncation, or by the repair of a failed sync."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The next offset to be assigned, including staged batches."""
        ...

    @property
    def written_offset(self) -> int:
        """Everything below is written to the file and survives a crash of the process."""
        ...

    @property
    def durable_offset(self) -> int:
        """Everything below survives a power failure."""
        ...

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as this log was informed; after opening, what it last stored.

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
        """Why the log is read-only; at start, what is corrupt."""
        ...

    @property
    def is_damaged(self) -> bool:
        """Did recovery find that durable records are corrupt or missing?"""
        ...

    @property
    def leader_epoch(self) -> int:
        """The latest epoch of this log, or -1."""
        ...

    def begin_epoch(self, leader_epoch: int) -> None:
        """A new leader epoch starts at the end of this log."""
        ...

    def configure(self, config: LogConfig) -> None: ...

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Staged:
        """Validate a batch, assign its offsets and queue it for writing.

        The memory is borrowed until `write_staged` returns. Raises ApiError; nothing is staged then.
        """
        ...

    def stage_all(
        self, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
    ) -> list[Staged | ApiError]:
        """`stage` for several batches of clients; a rejected batch does not affect the others."""
        ...

    def write_staged(self) -> None:
        """Write all staged batches with one call; on failure, unstage all and raise StorageFailed."""
        ...

    def write_later(self, done: Callable[[ApiError | None], None]) -> bool:
        """Write the staged batches in a thread; False, without effect, if they are too small for that.

        The memory stays borrowed until `done` receives None, once all is written, or the reason why all was
        unstaged.
        """
        ...

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool
    ) -> Slice:
        """Whole batches from the one that contains `offset`, below `end_offset`. Raises OFFSET_OUT_OF_RANGE.

        With `at_least_one` the first batch comes even if it alone is larger than `max_bytes`. Raises
        NotResident unless `may_block`. The bytes behind a FileSlice may be cold all the same: its sender
        probes them.
        """
        ...

    def read_batches(
        self, offset: int, max_bytes: int, end_offset: int
    ) -> BlockingRead[Sequence[memoryview]]:
        """Batches from the one that contains `offset`, at least one if any starts below `end_offset`."""
        ...

    def find_keys(self, offset: int, max_bytes: int, end_offset: int) -> BlockingRead[FoundKeys]:
        """The idempotency keys of the batches from the one that contains `offset`; at least of one batch."""
        ...

    def verify(self, offset: int, max_bytes: int) -> BlockingRead[Verified]:
        """Verify the batches from the one that contains `offset`, or from the log start; at least one."""
        ...

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        """The first record below `end_offset` whose timestamp is at least this."""
        ...

    def find_max_timestamp(self, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        """The first of the records below `end_offset` that have the largest timestamp."""
        ...

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the given one, or (-1, -1)."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, or -1."""
        ...

    def delete_records_before(
        self, offset: int, done: Callable[[ApiError | None], None] = lambda error: None
    ) -> None:
        """Advance the log start offset, and delete whole segments below it.

        `done` is called on the event loop once that is durable and visible, or with the reason why it could
        not be stored. Raises OFFSET_OUT_OF_RANGE above the high watermark.
        """
        ...

    def truncate_to(self, offset: int) -> None:
        """Truncate to `offset`; durable on return, so this waits for the disk."""
        ...

    def truncate_later(self, offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Truncate to `offset`, as a follower does to agree with its leader, without waiting for the disk.

        Epochs that begin there or later are forgotten even if they have no records. The log takes no writes
        until `done` is called, once that is durable, or with the reason why it failed.
        """
        ...

    def restart_at(self, offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Remove all batches and continue at `offset`, where the leader's log starts; as `truncate_later`.

        Everything before `offset` counts as committed.
        """
        ...

    def producers(self) -> Iterable[ProducerView]: ...

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, may_block: bool
    ) -> list[tuple[int, int]]:
        """(producer id, first offset), in order, of the aborted transactions that overlap these offsets.

        Raises NotResident unless `may_block`.
        """
        ...

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True if this producer has an open transaction in this log."""
        ...

    @property
    def open_transaction_ms(self) -> int | None:
        """How long the producer of an open transaction has written nothing here, of several the longest.

        None if there is none, or if that would have to be read from the disk.
        """
        ...

    def guard_transaction(self, producer_id: int, producer_epoch: int, base_sequence: int) -> Guard:
        """Set a guard while the coordinator verifies that this producer may start a transaction here."""
        ...

    def is_guarded(self, guard: Guard) -> bool:
        """Is the guard still set?"""
        ...

    def check_guard(self, guard: Guard, base_sequence: int, *, needs_start: bool) -> None:
        """Reject the start of a transaction unless the guard is still set: no other one has ended since.

        `needs_start`: a producer of which nothing is known must begin at sequence 0.
        """
        ...

    def check_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Reject a delayed or duplicate marker."""
        ...


class Snapshots(Protocol):
    """Snapshots stored beside a log. Everything but `ids` blocks and is for threads."""

    def ids(self) -> list[SnapshotId]:
        """The complete snapshots, newest first."""
        ...

    def write(self, snapshot: SnapshotId, batches: Iterable[bytearray]) -> None:
        """Store a snapshot; it is durable on return. Raises StorageFailed."""
        ...

    def read(self, snapshot: SnapshotId) -> Sequence[memoryview]:
        """All batches of a snapshot. Raises StorageFailed, or CorruptBatch if its bytes are not batches."""
        ...

    def remove_before(self, snapshot: SnapshotId) -> None:
        """Remove older snapshots, and what a crash left of any that was being written."""
        ...

    def read_page(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Bytes of a snapshot from a position on, and its size. StorageFailed or FileNotFoundError."""
        ...

    def write_page(self, snapshot: SnapshotId, position: int, data: memoryview) -> None:
        """Add bytes to a snapshot that is received in pages. Raises StorageFailed."""
        ...

    def read_received(self, snapshot: SnapshotId) -> Sequence[memoryview]:
        """As `read`, of a snapshot that was received and is not published."""
        ...

    def publish_received(self, snapshot: SnapshotId) -> None:
        """Make a received snapshot durable and complete. Raises StorageFailed."""
        ...


class StateFiles(Protocol):
    """Small files in the folder of a log. All methods block and are for threads."""

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if it does not exist. Raises StorageFailed."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically; it is durable on return. Raises StorageFailed."""
        ...


class BadDirectory(ValueError):
    """The data directory cannot be used by this node; the message states why, and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """To which node of which cluster a data directory belongs: its meta.properties."""

    directory_id: bytes
    cluster_id: str = ""
    """Empty if it belongs to no cluster yet."""
    node_id: int = -1
    """-1 if it belongs to no node yet."""


class Disk(Protocol):
    """All logs of this node."""

    @property
    def identity(self) -> Identity:
        """To which node of which cluster the directory belongs."""
        ...

    def identify(self, cluster_id: str, node_id: int) -> None:
        """Record to which node of which cluster the directory belongs; durable on return. Blocks.

        Raises BadDirectory if it belongs to another one.
        """
        ...

    def open_log(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """The log of a partition, created if missing. A directory of another topic id is replaced."""
        ...

    def remove_log(self, partition: TopicPartition) -> None:
        """Close the log now, delete its files later."""
        ...

    def sync(self, log: PartitionLog) -> "Future[int]":
        """Group commit: resolves with the durable offset after an fdatasync that started after this call."""
        ...

    def run_blocking(self, read: BlockingRead[Result]) -> "Future[Result]":
        """Run a read in a thread; the future has its result or its ApiError."""
        ...

    def snapshots(self, partition: TopicPartition) -> Snapshots:
        """The snapshots beside a log."""
        ...

    def state_files(self, partition: TopicPartition) -> StateFiles:
        """Small files beside a log, which must exist."""
        ...

    unclean: set[str]
    """Unless it is empty, the next start finds no log closed cleanly, even if they are: why. Used while logs
    that may have lost records are in the epoch in which these were read, or could be elected."""

    broker_epoch: int
    """The epoch of this broker's registration, or -1: a clean shutdown stores it."""

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch that the last clean shutdown stored; -1 if the last run ended otherwise."""
        ...

    def was_closed_cleanly(self, partition: TopicPartition) -> bool:
        """Did the last run close this log cleanly? Otherwise records that were written may have been lost."""
        ...

    def known_logs(self) -> Iterable[TopicPartition]: ...

    def directory_id(self) -> bytes: ...

    def directory_path(self) -> str: ...

    def space_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        ...

    def upkeep(self, now_ms: int) -> None:
        """Start due maintenance: retention, compaction, timed flushes, checkpoints; never blocks."""
        ...
