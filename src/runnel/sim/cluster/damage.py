"""Which parts of a node's files may be damaged without a rightful loss of committed records."""

from collections.abc import Iterator

from runnel.batch.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_POSITION, unpack_header
from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.log.checkpoints import decode_offsets
from runnel.log.names import LAST_BOOT, LOG, PROPERTIES, RECOVERY_POINTS, partition_of
from runnel.raft.election_state import QUORUM_STATE
from runnel.sim.files import SimFiles

_UNCOVERED = (*range(8), *range(LENGTH_PREFIX_BYTES, MAGIC_POSITION))
"""The base offset and the leader epoch of a batch."""


def damageable(files: SimFiles, *, is_truncated: bool) -> dict[str, int]:
    """Path → how many of its first bytes may be damaged.

    `is_truncated`: behind its recovery point, damage of a log is truncated like a torn write, because it
    looks like one, or a power failure may have happened. That loses nothing while other members of the ISR
    are known to have the records. One that was killed, or lost power, is not, and leaves ISR and ELR: then
    the damaged replica may be the last one left.

    A node whose meta.properties, quorum-state or metadata log is damaged does not start, and reports it.
    Without the file of the last boot, damage counts as the effect of a power failure.
    """
    needed = (f"/{PROPERTIES}", f"/{LAST_BOOT}", f"/{QUORUM_STATE}")
    paths = sorted(path for path in files.paths("/data") if not path.endswith(needed))
    sizes = {path: files.size_bytes(path) for path in paths if not _is_metadata(path)}
    if is_truncated:
        sizes = {
            path: _verified_bytes(files, path) if path.endswith(LOG) else size_bytes
            for path, size_bytes in sizes.items()
        }
    return {path: size_bytes for path, size_bytes in sizes.items() if size_bytes}


def verifiable(files: SimFiles, path: str, position: int) -> int:
    """This position, or one that is verified: nothing covers the base offset and epoch of a batch."""
    if path.endswith(LOG):
        for start, next_start, _ in _batches(files, path):
            if position < next_start:
                is_covered = position - start not in _UNCOVERED
                return position if is_covered else start + MAGIC_POSITION
    return position


def _is_metadata(path: str) -> bool:
    return path.endswith(LOG) and partition_of(path.split("/")[-2]) == METADATA_PARTITION


def _verified_bytes(files: SimFiles, path: str) -> int:
    """How much of a segment is below the recovery point."""
    partition = partition_of(path.split("/")[-2])
    if partition is None:
        return files.size_bytes(path)
    try:
        recovery_point = decode_offsets(files.read(f"/data/{RECOVERY_POINTS}")).get(partition, 0)
    except FileNotFoundError:
        return 0
    ends = [end for _, end, next_offset in _batches(files, path) if next_offset <= recovery_point]
    return max(ends, default=0)


def _batches(files: SimFiles, path: str) -> Iterator[tuple[int, int, int]]:
    """(position, position after it, next offset) of each batch."""
    data, position = files.read(path), 0
    while position + HEADER_BYTES <= len(data):
        base_offset, length, _, _, _, _, delta, *_ = unpack_header(data, position)
        start, position = position, position + length + LENGTH_PREFIX_BYTES
        yield start, position, base_offset + delta + 1
