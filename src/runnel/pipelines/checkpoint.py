"""Identity and lock of checkpoints: a query must not use the checkpoint of another, or one that is in use.

Spark itself would mix up the offsets of different sources, and detects concurrent use only on write. The
identity is a small file in the folder; the lock is released by the operating system when its holder exits.
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
    """The query that a checkpoint belongs to."""

    pipeline: str
    sources: tuple[str, ...]
    sink: str
    cluster: str | None = None
    """The id of the source cluster; None if unknown, as in files of older versions."""

    def __str__(self) -> str:
        return f"{self.pipeline!r}, which reads {', '.join(self.sources)} and writes {self.sink}"


@contextmanager
def locked_checkpoint(
    folder: str, *, pipeline: str, sources: Iterable[str], sink: str, cluster: str | None = None
) -> Iterator[str]:
    """Lock a checkpoint folder for this query; yields the value of checkpointLocation."""
    path = local_path(folder)
    if path is None:
        # No locks and atomic replacement there; Spark's own checks remain.
        yield folder
        return
    identity = Identity(pipeline, tuple(sorted(sources)), sink, cluster)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK_FILE).open("a+b")
    except OSError as error:
        raise BadCheckpoint(f"cannot use the checkpoint {path}: {error.strerror}") from error
    with lock:
        _lock(lock, path)
        _check_identity(path, identity)
        yield str(path)


def local_path(folder: str) -> Path | None:
    """The path of a local folder, also as file:/x or file:///x; None if it is remote."""
    scheme = _SCHEME.match(folder)
    if scheme is None:
        return Path(folder).absolute()
    if scheme[1].lower() == "file":
        return Path(re.sub(r"^file:(//)?", "", folder, flags=re.IGNORECASE)).absolute()
    return None


def _lock(lock: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read(32).decode("ascii", "replace").strip()
        owner = f"process {holder}" if holder else "another process"
        raise BadCheckpoint(
            f"the checkpoint {path} is in use by {owner}: stop it, or use another checkpoint"
        ) from None
    # For the message above only; the lock is authoritative.
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n".encode())
    lock.flush()


def _check_identity(path: Path, identity: Identity) -> None:
    file = path / IDENTITY_FILE
    try:
        kept = json.loads(file.read_text("utf-8"))
        owner = Identity(
            str(kept["pipeline"]), tuple(map(str, kept["sources"])), str(kept["sink"]), kept.get("cluster")
        )
    except FileNotFoundError:
        _check_unused(path)
        _write(file, identity)
        return
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{file} is not a valid checkpoint identity: {error}") from error
    if replace(owner, cluster=identity.cluster) != identity:
        raise BadCheckpoint(
            f"the checkpoint {path} belongs to the pipeline {owner}; this is {identity}. "
            "Use another checkpoint, or remove the folder to start over"
        )
    if owner.cluster is None and identity.cluster is not None:
        _write(file, identity)
    elif identity.cluster not in (None, owner.cluster):
        raise BadCheckpoint(
            f"the checkpoint {path} has offsets of the cluster {owner.cluster}, but this is the cluster "
            f"{identity.cluster}: use another checkpoint for it. Only if both have the same records at the "
            f"same offsets, remove the cluster from {IDENTITY_FILE} to resume"
        )


def _write(file: Path, identity: Identity) -> None:
    # A torn write would make the checkpoint unusable.
    replace_file(file, json.dumps(asdict(identity)), durable=True)


def _check_unused(path: Path) -> None:
    if any((path / name).exists() for name in ("metadata", "offsets", "commits")):
        raise BadCheckpoint(
            f"the checkpoint {path} belongs to a query that is not one of Runnel's pipelines: "
            "use another checkpoint"
        )
