"""Whose a checkpoint is: a folder of another query must not be resumed, nor one that is in use.

Spark itself would take offsets of one source for those of another, and finds out about a second user only
when both write. The identity is a small file in the folder; the lock is one that the system gives back when
its holder dies, however it dies.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from runnel.pipelines.atomic_files import replace_file
from runnel.pipelines.errors import BadCheckpoint

IDENTITY_FILE = "runnel-identity.json"
LOCK_FILE = "runnel-lock"

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a checkpoint's offsets mean something for."""

    pipeline: str
    sources: tuple[str, ...]
    sink: str
    cluster: str | None = None
    """The cluster whose topics are read; None if unknown, as in identities of older versions."""

    def __str__(self) -> str:
        return f"{self.pipeline!r}, which reads {', '.join(self.sources)} and writes {self.sink}"


@contextmanager
def locked_checkpoint(
    folder: str, *, pipeline: str, sources: Iterable[str], sink: str, cluster: str | None = None
) -> Iterator[str]:
    """The folder, for this query alone while the block runs; give it to Spark as checkpointLocation."""
    place = local_path(folder)
    if place is None:
        # Locks and atomic replacement are not to be had there; Spark's own checks remain.
        yield folder
        return
    identity = Identity(pipeline, tuple(sorted(sources)), sink, cluster)
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / LOCK_FILE).open("a+b")
    except OSError as error:
        raise BadCheckpoint(f"cannot use the checkpoint {place}: {error.strerror}") from error
    with lock:
        _take(lock, place)
        _check_identity(place, identity)
        yield str(place)


def local_path(folder: str) -> Path | None:
    """The folder on this machine, also if it is written as file:/x or file:///x; None if it is elsewhere."""
    scheme = _SCHEME.match(folder)
    if scheme is None:
        return Path(folder).absolute()
    if scheme[1].lower() == "file":
        return Path(re.sub(r"^file:(//)?", "", folder, flags=re.IGNORECASE)).absolute()
    return None


def _take(lock: BinaryIO, place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read(32).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder else "another process"
        raise BadCheckpoint(
            f"the checkpoint {place} is in use by {who}: stop that, or give this one a checkpoint of its own"
        ) from None
    # For the sentence above only: what counts is the lock.
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    lock.flush()


def _check_identity(place: Path, identity: Identity) -> None:
    file = place / IDENTITY_FILE
    try:
        kept = json.loads(file.read_text("utf-8"))
        owner = Identity(
            str(kept["pipeline"]), tuple(map(str, kept["sources"])), str(kept["sink"]), kept.get("cluster")
        )
    except FileNotFoundError:
        _check_unused(place)
        _write(file, identity)
        return
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{file} does not say whose the checkpoint is: {error}") from error
    if replace(owner, cluster=identity.cluster) != identity:
        raise BadCheckpoint(
            f"the checkpoint {place} belongs to the pipeline {owner}; this is {identity}. "
            "Give it a checkpoint of its own, or remove that folder to start over"
        )
    if owner.cluster is None and identity.cluster is not None:
        _write(file, identity)
    elif identity.cluster not in (None, owner.cluster):
        raise BadCheckpoint(
            f"the checkpoint {place} holds offsets of the cluster {owner.cluster}, and this is the cluster "
            f"{identity.cluster}: give the pipeline a checkpoint of its own for it. Only where both have the "
            f"same records at the same offsets, remove the cluster from {IDENTITY_FILE} to resume"
        )


def _write(file: Path, identity: Identity) -> None:
    # Half an identity would lock its owner out.
    replace_file(file, json.dumps(asdict(identity)), durable=True)


def _check_unused(place: Path) -> None:
    if any((place / name).exists() for name in ("metadata", "offsets", "commits")):
        raise BadCheckpoint(
            f"the checkpoint {place} was begun by a query that is not one of Runnel's pipelines: "
            "give this one a checkpoint of its own"
        )
