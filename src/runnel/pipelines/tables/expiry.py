"""Forgetting old snapshots, and removing the files that no snapshot needs."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from runnel.pipelines.errors import CommitConflict, TableError
from runnel.pipelines.tables.commit import tries
from runnel.pipelines.tables.durable import local_path
from runnel.pipelines.tables.staging import DATA_FOLDER, Listed, list_files
from runnel.pipelines.tables.table import SparkTable

DAY_MS = 24 * 60 * 60 * 1000
SNAPSHOTS_MIN = 5
SNAPSHOTS_MAX = 100
"""A commit writes down all snapshots that there are: with hundreds of them it takes a second and more."""
GRACE_MS = 30 * 60 * 1000
"""Snapshots beyond that number go after this time, which readers of them have to finish."""
METADATA_FOLDER = "metadata"


@dataclass(slots=True)
class Swept:
    """What a sweep removed."""

    snapshots: int = 0
    files: int = 0
    size_bytes: int = 0


def sweep(
    table: SparkTable,
    *,
    snapshots_older_than_ms: int = DAY_MS,
    snapshots_min: int = SNAPSHOTS_MIN,
    snapshots_max: int = SNAPSHOTS_MAX,
    grace_ms: int = GRACE_MS,
    orphans_older_than_ms: int = DAY_MS,
) -> Swept:
    """Expire snapshots of this age but for the newest ones, and remove files that none of the rest needs.

    Where there are more than `snapshots_max`, the older ones go earlier, but for those within `grace_ms`.

    Files that no snapshot names may be those of a writer at work: they stay for `orphans_older_than_ms`.
    A reader of a snapshot that goes may miss its files: choose the ages longer than any query takes.
    """
    now_ms = time.time_ns() // 1_000_000
    limits = _Limits(
        now_ms - snapshots_older_than_ms, max(1, snapshots_min), now_ms - grace_ms, snapshots_max
    )
    expired = _expire(table, limits)
    # In this order: what is committed after the list was made is not in it.
    latest = table.latest()
    listed = [
        file
        for folder in (DATA_FOLDER, METADATA_FOLDER)
        for file in list_files(latest.io, f"{latest.location()}/{folder}")
    ]
    latest = table.latest()
    needed = _needed(latest, listed)
    unneeded = [
        file
        for file in listed
        if _owner(file.location) not in needed
        and (file.location in expired or file.modified_ms < now_ms - orphans_older_than_ms)
    ]
    for file in unneeded:
        _remove(latest.io, file.location)
    return Swept(len(expired.snapshots), len(unneeded), sum(file.size_bytes for file in unneeded))


@dataclass(slots=True)
class _Limits:
    """Which snapshots may go."""

    old_before_ms: int
    count_min: int
    grace_before_ms: int
    count_max: int


@dataclass(slots=True)
class _Expired:
    """Snapshots that were just forgotten, and what they named."""

    snapshots: list[int]
    keys: set[str]

    def __contains__(self, location: str) -> bool:
        return _owner(location) in self.keys


def _expire(table: SparkTable, limits: _Limits) -> _Expired:
    for _ in tries():
        latest = table.latest()
        old = _expirable(latest, limits)
        if not old:
            return _Expired([], set())
        keys = _named_by(latest.io, old)
        numbers = [snapshot.snapshot_id for snapshot in old]
        try:
            latest.maintenance.expire_snapshots().by_ids(numbers).commit()
        except (CommitFailedException, CommitStateUnknownException, OperationalError):
            # If it was done all the same, the files go when they are as old as those of no snapshot.
            continue
        return _Expired(numbers, keys)
    raise CommitConflict(f"table {table.name} is written to by too many others: its snapshots stay")


def _expirable(table: Table, limits: _Limits) -> list[Snapshot]:
    kept = {reference.snapshot_id for reference in table.refs().values()}
    newest_first = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
    return [
        snapshot
        for rank, snapshot in enumerate(newest_first)
        if snapshot.snapshot_id not in kept
        and rank >= limits.count_min
        and snapshot.timestamp_ms
        < (limits.old_before_ms if rank < limits.count_max else limits.grace_before_ms)
    ]


def _needed(table: Table, listed: Iterable[Listed]) -> set[str]:
    """The files that the table needs; TableError if the folder knows them by other names."""
    there = {_key(file.location) for file in listed}
    needed = _named_by(table.io, table.snapshots())
    needed.add(_key(table.metadata_location))
    if _key(table.metadata_location) not in there:
        raise TableError(
            f"the folder of table {'.'.join(table.name())} lists none of its own files under the names that "
            "the table has for them: nothing was removed"
        )
    needed.update(_key(entry.metadata_file) for entry in table.metadata.metadata_log)
    needed.update(_key(file.statistics_path) for file in table.metadata.statistics)
    return needed


def _named_by(files: FileIO, snapshots: Iterable[Snapshot]) -> set[str]:
    """Every manifest list, manifest and data file of these snapshots."""
    keys: set[str] = set()
    for snapshot in snapshots:
        keys.add(_key(snapshot.manifest_list))
        for manifest in snapshot.manifests(files):
            if (key := _key(manifest.manifest_path)) in keys:
                continue
            keys.add(key)
            entries = manifest.fetch_manifest_entry(files, discard_deleted=True)
            keys.update(_key(entry.data_file.file_path) for entry in entries)
    return keys


def _owner(location: str) -> str:
    """The key of a file, or of the file that a checksum of Hadoop's is for."""
    folder, slash, name = _key(location).rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        name = name[1:].removesuffix(".crc")
    return f"{folder}{slash}{name}"


def _key(location: str) -> str:
    return local_path(location) or location


def _remove(files: FileIO, location: str) -> None:
    with suppress(FileNotFoundError):
        files.delete(location)
    path = local_path(location)
    if path is not None:
        # Folders of attempts go with their last file; one that still has another refuses.
        with suppress(OSError):
            while (path := os.path.dirname(path)) and os.path.basename(path) != DATA_FOLDER:
                os.rmdir(path)
