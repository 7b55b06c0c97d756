"""Which parts of a node's files may be damaged without a rightful loss of committed records."""

from runnel.batch.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, unpack_header
from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.log.checkpoints import decode_offsets
from runnel.log.names import LOG, PROPERTIES, RECOVERY_POINTS, partition_of
from runnel.raft.election_state import QUORUM_STATE
from runnel.sim.files import SimFiles


def damageable(files: SimFiles, *, others_may_restart: bool) -> dict[str, int]:
    """Path → how many of its first bytes may be damaged.

    Behind its recovery point, damage of a log looks like a torn write: recovery truncates it there.
    That loses nothing while other members of the ISR are known to have the records. One that was killed, or
    lost power, is not, and leaves ISR and ELR: then the damaged replica may be the last one left.

    A node whose meta.properties or quorum-state is damaged does not start, and reports it.
    """
    needed = (f"/{PROPERTIES}", f"/{QUORUM_STATE}")
    paths = sorted(path for path in files.paths("/data") if not path.endswith(needed))
    sizes = {path: files.size_bytes(path) for path in paths}
    if others_may_restart:
        sizes = {
            path: _verified_bytes(files, path) if path.endswith(LOG) else size_bytes
            for path, size_bytes in sizes.items()
        }
    return {path: size_bytes for path, size_bytes in sizes.items() if size_bytes}


def _verified_bytes(files: SimFiles, path: str) -> int:
    """How much of a segment is below the recovery point."""
    partition = partition_of(path.split("/")[-2])
    if partition is None or partition == METADATA_PARTITION:
        return files.size_bytes(path)
    try:
        recovery_point = decode_offsets(files.read(f"/data/{RECOVERY_POINTS}")).get(partition, 0)
    except FileNotFoundError:
        return 0
    data, position = files.read(path), 0
    while position + HEADER_BYTES <= len(data):
        base_offset, length, _, _, _, _, delta, *_ = unpack_header(data, position)
        if base_offset + delta >= recovery_point:
            break
        position += length + LENGTH_PREFIX_BYTES
    return position
