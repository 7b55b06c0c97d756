"""Snapshot expiry by table properties, and removal of unreferenced files.

| property of the table, as in Iceberg | default | what it does |
|---|---|---|
| history.expire.max-snapshot-age-ms | 5 days | older snapshots of a branch expire |
| history.expire.min-snapshots-to-keep | 1 | but never the newest ones of a branch |
| gc.enabled | true | false: nothing is expired, and no file removed |

A branch may have its own values for the first two. Branches and tags themselves never expire here.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from runnel.pipelines.errors import CommitConflict, TableError
from runnel.pipelines.tables.commit import attempts
from runnel.pipelines.tables.durable import local_path
from runnel.pipelines.tables.staging import DATA_FOLDER, Listed, list_files
from runnel.pipelines.tables.table import SparkTable
from runnel.pipelines.upkeep import ORPHAN_AGE_MS

GC_ENABLED = "gc.enabled"
METADATA_FOLDER = "metadata"


@dataclass(slots=True)
class Swept:
    """The result of a sweep."""

    snapshots: int = 0
    files: int = 0
    size_bytes: int = 0


def sweep(table: SparkTable, *, is_expiring: bool = True, orphan_age_ms: int | None = ORPHAN_AGE_MS) -> Swept:
    """Expire snapshots by the table properties, and remove files that only these referenced.

    Files that no snapshot references are orphans, or belong to an active writer: they are removed at the age
    of `orphan_age_ms`, or never if that is None. Queries on an expired snapshot fail: the ages must exceed
    the duration of any query.
    """
    latest = table.latest()
    if not _is_gc_enabled(latest):
        return Swept()
    now_ms = time.time_ns() // 1_000_000
    expired = _expire(table, now_ms) if is_expiring else _Expired([], set())
    if orphan_age_ms is None and not expired.snapshots:
        return Swept()
    # List files first: files committed afterwards are not in the list.
    listed = [
        file
        for folder in (DATA_FOLDER, METADATA_FOLDER)
        for file in list_files(latest.io, f"{latest.location()}/{folder}")
    ]
    latest = table.latest()
    needed = _needed(latest, listed)
    orphaned_before_ms = -1 if orphan_age_ms is None else now_ms - orphan_age_ms
    unneeded = [
        file
        for file in listed
        if _owner(file.location) not in needed
        and (file.location in expired or file.modified_ms < orphaned_before_ms)
    ]
    for file in unneeded:
        _remove(latest.io, file.location)
    return Swept(len(expired.snapshots), len(unneeded), sum(file.size_bytes for file in unneeded))


def _is_gc_enabled(table: Table) -> bool:
    """May the table delete its files?"""
    return table.properties.get(GC_ENABLED, "true").strip().lower() != "false"


def _number(table: Table, name: str, default: int) -> int:
    text = table.properties.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise TableError(
            f"table {'.'.join(table.name())} has the property {name}={text!r}, which is not an integer"
        ) from None


@dataclass(slots=True)
class _Expired:
    """Expired snapshots, and the files that they referenced."""

    snapshots: list[int]
    keys: set[str]

    def __contains__(self, location: str) -> bool:
        return _owner(location) in self.keys


def _expire(table: SparkTable, now_ms: int) -> _Expired:
    for _ in attempts():
        latest = table.latest()
        old = _expirable(latest, now_ms)
        if not old:
            return _Expired([], set())
        keys = _referenced_by(latest.io, old)
        numbers = [snapshot.snapshot_id for snapshot in old]
        try:
            latest.maintenance.expire_snapshots().by_ids(numbers).commit()
        except (CommitFailedException, CommitStateUnknownException, OperationalError):
            # If the commit succeeded, the files are removed later as orphans.
            continue
        return _Expired(numbers, keys)
    raise CommitConflict(f"table {table.name} has too many concurrent writers: its snapshots are kept")


def _expirable(table: Table, now_ms: int) -> list[Snapshot]:
    """The snapshots that no branch or tag retains."""
    age_ms = _number(table, TableProperties.MAX_SNAPSHOT_AGE_MS, TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT)
    least = _number(
        table, TableProperties.MIN_SNAPSHOTS_TO_KEEP, TableProperties.MIN_SNAPSHOTS_TO_KEEP_DEFAULT
    )
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    kept: set[int] = set()
    of_branches: set[int] = set()
    for reference in table.refs().values():
        kept.add(reference.snapshot_id)
        if reference.snapshot_ref_type is SnapshotRefType.BRANCH:
            own_age_ms = age_ms if reference.max_snapshot_age_ms is None else reference.max_snapshot_age_ms
            own_least = least if reference.min_snapshots_to_keep is None else reference.min_snapshots_to_keep
            branch = _branch(snapshots, reference.snapshot_id)
            of_branches.update(snapshot.snapshot_id for snapshot in branch)
            kept.update(_kept(branch, now_ms - own_age_ms, max(own_least, 1)))
    return [
        snapshot
        for number, snapshot in snapshots.items()
        if number not in kept and (number in of_branches or snapshot.timestamp_ms < now_ms - age_ms)
    ]


def _branch(snapshots: Mapping[int, Snapshot], head: int) -> list[Snapshot]:
    """The snapshots of a branch, the newest first."""
    found: list[Snapshot] = []
    following: int | None = head
    while following is not None and (snapshot := snapshots.get(following)) is not None:
        found.append(snapshot)
        following = snapshot.parent_snapshot_id
    return found


def _kept(branch: Sequence[Snapshot], old_before_ms: int, least: int) -> Iterator[int]:
    for rank, snapshot in enumerate(branch):
        if rank >= least and snapshot.timestamp_ms < old_before_ms:
            return
        yield snapshot.snapshot_id


def _needed(table: Table, listed: Iterable[Listed]) -> set[str]:
    """The files that the table references; TableError if the listing does not contain its metadata file."""
    there = {_key(file.location) for file in listed}
    needed = _referenced_by(table.io, table.snapshots())
    needed.add(_key(table.metadata_location))
    if _key(table.metadata_location) not in there:
        raise TableError(
            f"the listing of table {'.'.join(table.name())} does not contain its metadata file under the "
            "name in the catalog: nothing was removed"
        )
    needed.update(_key(entry.metadata_file) for entry in table.metadata.metadata_log)
    needed.update(_key(file.statistics_path) for file in table.metadata.statistics)
    return needed


def _referenced_by(files: FileIO, snapshots: Iterable[Snapshot]) -> set[str]:
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
    """The key of a file; for a Hadoop .crc file, that of the file it belongs to."""
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
        # Remove empty folders of attempts; rmdir fails for others.
        with suppress(OSError):
            while (path := os.path.dirname(path)) and os.path.basename(path) != DATA_FOLDER:
                os.rmdir(path)
