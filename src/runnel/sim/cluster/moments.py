"""Moments at which a process ends: in the middle of what it must complete, or resume after its restart.

A process is not ended at the first file operation of such a moment, but at one of the next: each step of
what has begun is the last one in some simulation.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.disk.disk_log import DiskLog
from runnel.log.names import CHECKPOINT
from runnel.raft.roles import Follower
from runnel.sim.cluster.node import Life, Process, SimNode
from runnel.sim.files import PowerFailure

METADATA_FOLDER = f"/data/{METADATA_PARTITION}/"


class Moment(NamedTuple):
    """Something that takes several file operations."""

    is_now: Callable[[Process, str], bool]
    """Does a process do it, when it is about to modify this path?"""
    operations_max: int = 12
    """The process ends at one of this many operations."""


class Ambush:
    """Ends the first process that reaches a moment, and no other."""

    def __init__(
        self, nodes: Iterable[SimNode], moment: Moment, random: Random, end: Callable[[SimNode], None]
    ) -> None:
        self._nodes = list(nodes)
        self._moment = moment
        self._random = random
        self._end = end
        self._process: Process | None = None
        """The one that has reached the moment."""
        self._operations_left = 0
        for node in self._nodes:
            node.watchers[self] = None

    def disarm(self) -> None:
        """No process ends from now on."""
        for node in self._nodes:
            node.watchers.pop(self, None)

    def operating(self, process: Process, path: str) -> None:
        """A process is about to modify a path. Raises PowerFailure if it ends here."""
        if self._process is None or self._process.life is Life.ENDED:
            if not self._moment.is_now(process, path):
                return
            self._process = process
            self._operations_left = self._random.randrange(self._moment.operations_max)
        if process is not self._process:
            return
        if self._operations_left == 0:
            self.disarm()
            self._end(process.node)
            raise PowerFailure(f"before a modification of {path}")
        self._operations_left -= 1


def is_recovering(process: Process, path: str) -> bool:
    """The broker opens its logs after an unclean stop, registers, and catches up."""
    return process.life is Life.STARTING


def is_truncating(process: Process, path: str) -> bool:
    """Batches are removed from the end of a log, or all of them."""
    if not process.has_quorum:
        return False
    logs = [process.broker.quorum.log, *(each.log for each in process.broker.partitions.values())]
    return any(isinstance(log, DiskLog) and log.truncation is not None for log in logs)


def is_writing_snapshot(process: Process, path: str) -> bool:
    """A snapshot of the metadata is written; then the log is shortened, and older ones are removed."""
    return _is_snapshot(path) and not _is_fetching(process)


def is_fetching_snapshot(process: Process, path: str) -> bool:
    """A snapshot of the leader is stored in pages; then it replaces the log."""
    return _is_snapshot(path) and _is_fetching(process)


def is_reassigning(process: Process, path: str) -> bool:
    """A partition of this broker is being reassigned."""
    return process.has_quorum and any(
        process.node.id in state.replicas and (state.adding or state.removing)
        for topic in process.broker.metadata.image.topics.values()
        for state in topic.partitions
    )


def is_changing_voters(process: Process, path: str) -> bool:
    """A change of the voters is in the log, and not known to be committed."""
    if not process.has_quorum:
        return False
    quorum = process.broker.quorum
    return quorum.core.history.last_change_offset >= quorum.high_watermark


def _is_snapshot(path: str) -> bool:
    return path.startswith(METADATA_FOLDER) and CHECKPOINT in path


def _is_fetching(process: Process) -> bool:
    role = process.broker.quorum.core.role if process.has_quorum else None
    return isinstance(role, Follower) and role.snapshot is not None


MOMENTS = {
    "recovery": Moment(is_recovering, 60),
    "truncation": Moment(is_truncating),
    "a snapshot write": Moment(is_writing_snapshot),
    "a snapshot fetch": Moment(is_fetching_snapshot),
    "reassignment": Moment(is_reassigning),
    "a voter change": Moment(is_changing_voters),
}
"""By name."""
