"""The data directory: all logs of this node, how they are opened, closed and removed."""

import logging
from asyncio import Future, get_running_loop
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from runnel.disk.atomic import make_durable_folder, replace_file
from runnel.disk.blocking_read import ATTEMPTS_MAX, SegmentsRead
from runnel.disk.checkpointing import Checkpoints
from runnel.disk.cleaner import Cleaner
from runnel.disk.closing import close_logs
from runnel.disk.disk_log import DiskLog
from runnel.disk.group_commit import GroupCommit
from runnel.disk.identity import check_identity, load_identity, store_identity
from runnel.disk.open_files import OpenFiles
from runnel.disk.opening import create_log, log_from_manifest, recover_log, topic_id_of
from runnel.disk.power_failures import PowerFailures
from runnel.disk.removal import Removal
from runnel.disk.segments import Segments
from runnel.disk.snapshots import SnapshotFiles
from runnel.disk.staged_write import BACKGROUND_BYTES_MIN
from runnel.disk.state_files import StateFilesOnDisk
from runnel.disk.truncation import Steps, run_soon
from runnel.disk.upkeep import Upkeep, UpkeepIntervals
from runnel.log.clean_shutdown import NO_EPOCH, decode_clean_shutdown, encode_clean_shutdown
from runnel.log.manifest import DamagedManifest, LogEntry, decode_manifest, encode_manifest
from runnel.log.names import CLEAN_SHUTDOWN, LOCK, MANIFEST, MASTERS, partition_of
from runnel.log.producers import Producers
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.ids import METADATA_TOPIC_ID, TopicPartition
from runnel.model.log_config import LogConfig
from runnel.observe.metrics import LatencyCounts
from runnel.ports.clock import Clock
from runnel.ports.disk import BadDirectory, BlockingRead, Identity, PartitionLog
from runnel.ports.entropy import Entropy
from runnel.ports.files import Files, Workers

if TYPE_CHECKING:
    from runnel.disk.key_rotation import KeyRotation
    from runnel.disk.keyring import Keyring

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class DataDirectory:
    """All logs of this node. Opened and closed once; between that it holds the folder's lock."""

    def __init__(
        self,
        path: str,
        *,
        files: Files,
        clock: Clock,
        entropy: Entropy,
        write_workers: Workers,
        sync_workers: Workers,
        upkeep_workers: Workers,
        read_workers: Workers,
        cleaner: Cleaner | None = None,
        intervals: UpkeepIntervals | None = None,
        open_files_max: int | None = None,
        background_bytes_min: int = BACKGROUND_BYTES_MIN,
        keyring: "Keyring | None" = None,
    ) -> None:
        """Without a keyring, no segment can be encrypted, nor an encrypted one be read."""
        self.background_bytes_min = background_bytes_min
        self._path = path.rstrip("/")
        self._files = files
        self._clock = clock
        self._epoch_ms = clock.now_ms() - clock.monotonic_ms()
        self._write_workers, self._sync_workers = write_workers, sync_workers
        self._upkeep_workers, self._read_workers = upkeep_workers, read_workers
        self._open_files = OpenFiles(files, open_files_max or files.open_files_max())
        self._logs: dict[TopicPartition, DiskLog] = {}
        self._loading: set[DiskLog] = set()
        make_durable_folder(files, self._path)
        self._keyring = keyring
        self._check_keys()
        self._lock: object | None = files.lock(f"{self._path}/{LOCK}")
        self._identity = load_identity(files, self._path, entropy)
        self.unclean: set[str] = set()
        self.broker_epoch = NO_EPOCH
        self._closed_logs = self._take_marks()
        """Logs of the last clean run of Runnel that have not been opened since."""
        self._checkpoints = Checkpoints(files, self._path, sync_workers, upkeep_workers)
        self._commit = GroupCommit(sync_workers, upkeep_workers, self._checkpoints.record, clock.seconds)
        self._removal = Removal(files, self._path, upkeep_workers)
        names = files.names(self._path)
        self._removal.adopt(names)
        self._folders = {found for found in map(partition_of, names) if found is not None}
        self._checkpoints.delete_all_but(self._folders)
        self._power_failures = PowerFailures(files, self._path, self._folders, upkeep_workers)
        cleaner = cleaner or Cleaner(upkeep_workers, report=logger.warning)
        self._upkeep = self._new_upkeep(cleaner, intervals or UpkeepIntervals())
        self._rotation = self._new_rotation()

    def _new_upkeep(self, cleaner: Cleaner, intervals: UpkeepIntervals) -> Upkeep:
        return Upkeep(
            self._logs,
            self._checkpoints,
            self._commit,
            self._removal,
            self._upkeep_workers,
            cleaner,
            intervals,
        )

    def open_log(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> DiskLog:
        """The log of a partition, created if missing. A folder left by another topic id is replaced."""
        log = self._logs.get(partition)
        if log is not None and log.topic_id == topic_id:
            log.configure(config)
            return log
        if log is not None:
            self.remove_log(partition)
        try:
            log = self._open(partition, topic_id, config)
        except OSError as error:
            raise StorageFailed(f"{self._path}/{partition}: {error}") from error
        self._power_failures.opened(partition, is_damaged=log.is_damaged)
        log.advance_high_watermark(self._checkpoints.high_watermarks.offsets.get(partition, 0))
        self._logs[partition] = log
        return log

    def _open(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> DiskLog:
        keys = None if self._keyring is None else self._keyring.keys_of(partition, topic_id)
        segments = Segments(self._files, self._open_files, f"{self._path}/{partition}", keys)
        entry = self._closed_logs.get(partition)
        if entry is not None and partition in self._folders and entry.topic_id == topic_id:
            del self._closed_logs[partition]
            log = log_from_manifest(partition, entry, config, self, segments)
            if log is not None:
                return log
        if partition in self._folders:
            if topic_id_of(self._files, segments.folder) in (None, topic_id):
                return self._recover(partition, topic_id, config, segments)
            logger.warning("%s belongs to a deleted topic: it is replaced", segments.folder)
        self.remove_log(partition)
        recreated = self._checkpoints.recreated
        is_recreated = self._checkpoints.may_contain_deleted(partition)
        if is_recreated:
            recreated.mark(partition, topic_id)
        is_recreated |= recreated.is_marked(partition, topic_id)
        self._folders.add(partition)
        log = create_log(partition, topic_id, config, self, segments)
        if is_recreated:
            recreated.add(log)
        return log

    def _recover(
        self, partition: TopicPartition, topic_id: bytes, config: LogConfig, segments: Segments
    ) -> DiskLog:
        checkpoints = self._checkpoints
        is_recreated = checkpoints.recreated.is_marked(partition, topic_id)
        if is_recreated:
            checkpoints.delete(partition)
        log = recover_log(
            partition,
            topic_id,
            config,
            self,
            segments,
            recovery_point=checkpoints.recovery_points.offsets.get(partition, 0),
            log_start_offset=checkpoints.log_starts.offsets.get(partition, 0),
            may_have_lost_writes=self._power_failures.may_have_lost_writes(partition),
        )
        log.was_closed_cleanly = self._was_closed_cleanly and log.failure is None
        if is_recreated:
            checkpoints.recreated.add(log)
        return log

    def remove_log(self, partition: TopicPartition) -> None:
        """Remove the log now, and its files later."""
        log = self._logs.pop(partition, None)
        self._closed_logs.pop(partition, None)
        if log is not None:
            log.settle()
            log.abandon_changes()
            log.fail(f"{partition} was removed", can_repair=False)
            self._commit.forget(log)
            for segment in log.segments.segments:
                log.segments.forget(segment)
            log.detach()
        try:
            if partition in self._folders:
                # It requires no space: on a full disk this is how space is freed.
                self._removal.remove_folder(str(partition), log.config.file_delete_delay_ms if log else 0)
                self._folders.discard(partition)
            self._power_failures.forget(partition)
            self._checkpoints.delete(partition)
        except OSError as error:
            raise StorageFailed(f"{self._path}/{partition}: {error}") from error

    def sync(self, log: PartitionLog) -> "Future[int]":
        assert isinstance(log, DiskLog)
        return self._commit.sync(log)

    def run_blocking(self, read: BlockingRead[Result]) -> "Future[Result]":
        future: Future[Result] = get_running_loop().create_future()
        self._read_workers.submit(read.run, partial(self._read, read, future))
        return future

    def _read(
        self, read: BlockingRead[Result], future: "Future[Result]", _: None, bug: BaseException | None
    ) -> None:
        if future.done():
            # Its caller was cancelled.
            return
        try:
            if bug is not None:
                raise bug
            if isinstance(read, SegmentsRead) and read.is_stale and read.attempts < ATTEMPTS_MAX:
                # Its offset may be out of range by now, which is then its outcome.
                read.prepare()
                self._read_workers.submit(read.run, partial(self._read, read, future))
                return
            result = read.finish()
        except Exception as failure:  # noqa: BLE001 - any failure is passed to the caller
            future.set_exception(failure)
        else:
            future.set_result(result)

    def snapshots(self, partition: TopicPartition) -> SnapshotFiles:
        return SnapshotFiles(self._files, f"{self._path}/{partition}")

    def state_files(self, partition: TopicPartition) -> StateFilesOnDisk:
        return StateFilesOnDisk(self._files, f"{self._path}/{partition}")

    def was_closed_cleanly(self, partition: TopicPartition) -> bool:
        log = self._logs.get(partition)
        if log is not None:
            return log.was_closed_cleanly
        return partition in self._closed_logs or (self._was_closed_cleanly and partition in self._folders)

    def known_logs(self) -> Iterable[TopicPartition]:
        return sorted(self._folders)

    @property
    def identity(self) -> Identity:
        return self._identity

    def identify(self, cluster_id: str, node_id: int) -> None:
        if (self._identity.cluster_id, self._identity.node_id) != (cluster_id, node_id):
            check_identity(self._identity, self._path, cluster_id, node_id)
            self._identity = replace(self._identity, cluster_id=cluster_id, node_id=node_id)
            store_identity(self._files, self._path, self._identity)

    def directory_id(self) -> bytes:
        return self._identity.directory_id

    def directory_path(self) -> str:
        return self._path

    def space_bytes(self) -> tuple[int, int]:
        try:
            return self._files.space_bytes(self._path)
        except OSError as error:
            raise StorageFailed(f"{self._path}: {error}") from error

    @property
    def sync_times(self) -> LatencyCounts:
        """How long each fdatasync of a log took."""
        return self._commit.sync_times

    @property
    def sync_failures(self) -> int:
        """Syncs of logs that failed."""
        return self._commit.failures

    def upkeep(self, now_ms: int) -> None:
        self._upkeep.run(now_ms)
        self._power_failures.store_soon()
        if self._rotation is not None:
            self._rotation.consider(now_ms)

    def change_master_keys(self, keys: Sequence[bytes]) -> bool:
        """Use these master keys, the first for all segments; True if that is a change.

        Raises BadDirectory if one that is still needed is missing.
        """
        assert self._keyring is not None
        return self._keyring.change(keys)

    def close(self) -> None:
        """Clean shutdown: make everything durable and write the manifest that the next start relies on."""
        if self._lock is None:
            return
        self._stop_rotation()
        for log in self._logs.values():
            log.settle()
            log.finish_swap()
        self._upkeep.close()
        self._commit.close()
        entries = close_logs(self._logs.values(), self._files, self._path, self._sync_workers)
        self._removal.finish()
        self._write_workers.close()
        self._sync_workers.close()
        self._upkeep_workers.close()
        self._read_workers.close()
        try:
            self._checkpoints.store(self._logs.values())
            if not self.unclean and len(entries) == len(self._logs):
                self._mark_clean({**self._closed_logs, **entries})
        except OSError as error:
            logger.warning("%s is not closed cleanly: %s", self._path, error)
        self._release()

    def abandon(self) -> None:
        """End as if the process was killed: no more is written, and the next start runs recovery."""
        if self._lock is None:
            return
        self._stop_rotation()
        for workers in (self._write_workers, self._sync_workers, self._upkeep_workers, self._read_workers):
            workers.close()
        self._release()

    def _release(self) -> None:
        for log in self._logs.values():
            log.fail(f"{self._path} is closed", can_repair=False)
            for segment in log.segments.segments:
                log.segments.forget(segment)
        self._lock = None

    def _mark_clean(self, logs: dict[TopicPartition, LogEntry]) -> None:
        data = encode_manifest(logs, self.broker_epoch)
        replace_file(self._files, self._path, MANIFEST, data, sync=True)
        data = encode_clean_shutdown(self.broker_epoch)
        replace_file(self._files, self._path, CLEAN_SHUTDOWN, data, sync=True)

    # What logs need of their directory (`Home`).

    def steady_ms(self) -> int:
        return self._epoch_ms + self._clock.monotonic_ms()

    def write_soon(
        self, work: Callable[[], None], done: Callable[[None, BaseException | None], None]
    ) -> None:
        self._write_workers.submit(work, done)

    def seal_soon(self, log: DiskLog) -> None:
        self._commit.seal(log)

    def load_soon(self, log: DiskLog) -> None:
        if log not in self._loading:
            self._loading.add(log)
            read = log.load_ahead()
            self._read_workers.submit(read.run, partial(self._loaded, log, read))

    def _loaded(
        self, log: DiskLog, read: SegmentsRead[Producers | None], _: None, bug: BaseException | None
    ) -> None:
        self._loading.discard(log)
        if bug is not None:
            raise bug
        if self._logs.get(log.name) is log and not read.is_stale:
            try:
                log.loaded_ahead(read.finish())
            except StorageFailed as failure:
                logger.warning("%s could not be loaded: %s", log.name, failure)

    def flush_soon(self, log: DiskLog) -> None:
        self._commit.flush(log)

    def flush_later(self, log: DiskLog) -> None:
        self._upkeep.flush_later(log)

    def repair_later(self, log: DiskLog) -> None:
        self._upkeep.repair_later(log)

    def advance_log_start(self, log: DiskLog, offset: int, done: Callable[[ApiError | None], None]) -> None:
        self._checkpoints.advance_log_start(log, offset, done)

    def interrupt_sync(self, log: DiskLog) -> list[Callable[[], None]]:
        return self._commit.interrupt(log)

    def truncate_checkpoints(self, log: DiskLog, end_offset: int) -> list[Callable[[], None]]:
        return self._checkpoints.truncate(log, end_offset)

    def truncate_soon(self, steps: Steps, done: Callable[[ApiError | None], None]) -> None:
        run_soon(steps, self._read_workers, self._sync_workers, done)

    def discard(self, paths: list[str], delay_ms: int) -> None:
        self._removal.discard(paths, delay_ms)

    def _new_rotation(self) -> "KeyRotation | None":
        if self._keyring is None:
            return None
        from runnel.disk.key_rotation import KeyRotation

        return KeyRotation(self._keyring, self._files, self._path, self._logs, self._upkeep_workers)

    def _stop_rotation(self) -> None:
        if self._rotation is not None:
            self._rotation.stop()

    def _check_keys(self) -> None:
        if self._keyring is not None:
            self._keyring.check()
        elif self._files.exists(f"{self._path}/{MASTERS}"):
            raise BadDirectory(
                f"{self._path} has encrypted segments, and this node has no master key: set "
                "encryption.master.key.file or encryption.master.key.command"
            )

    def _closing_epoch(self) -> int | None:
        """The broker epoch of the last run, of Runnel or Apache Kafka, if it ended cleanly."""
        try:
            return decode_clean_shutdown(self._files.read(f"{self._path}/{CLEAN_SHUTDOWN}"))
        except FileNotFoundError:
            return None

    def _take_marks(self) -> dict[TopicPartition, LogEntry]:
        """The logs of the manifest, if it is valid. The marks of a clean shutdown are removed durably.

        The metadata log is always recovered: a controller of Apache Kafka appends to it and leaves the marks.
        """
        closing_epoch = self._closing_epoch()
        self.previous_broker_epoch = NO_EPOCH if closing_epoch is None else closing_epoch
        self._was_closed_cleanly = closing_epoch is not None
        try:
            manifest = decode_manifest(self._files.read(f"{self._path}/{MANIFEST}"))
            logs = manifest.logs
            if manifest.broker_epoch != closing_epoch:
                logger.warning("%s/%s is not used: another release has run since", self._path, MANIFEST)
                logs = {}
        except FileNotFoundError:
            logs = {}
        except DamagedManifest as damage:
            logger.warning("%s/%s is not used: %s", self._path, MANIFEST, damage)
            logs = {}
        # In this order: the manifest of a folder without the other mark is not valid.
        marks = [f"{self._path}/{name}" for name in (CLEAN_SHUTDOWN, MANIFEST)]
        marks = [path for path in marks if self._files.exists(path)]
        for path in marks:
            self._files.remove(path)
        if marks:
            self._files.sync_folder(self._path)
        return {name: entry for name, entry in logs.items() if entry.topic_id != METADATA_TOPIC_ID}
