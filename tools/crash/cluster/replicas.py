"""The logs of all replicas of a partition as their nodes stored them: they must be equal."""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from tools.crash.ledger import Partition

HEAD = struct.Struct(">qi")
"""Base offset, and the number of bytes that follow."""
LAST_OFFSET_DELTA = struct.Struct(">i")
LAST_OFFSET_DELTA_AT = 23


def stored_batches(folder: Path) -> Iterator[tuple[int, int, bytes]]:
    """(base offset, end offset, digest) of each batch in the segments of a partition."""
    for path in sorted(folder.glob("*.log")):
        content, position = path.read_bytes(), 0
        while position + HEAD.size < len(content):
            offset, size = HEAD.unpack_from(content, position)
            end = position + HEAD.size + size
            if size <= 0 or end > len(content):
                break
            (delta,) = LAST_OFFSET_DELTA.unpack_from(content, position + LAST_OFFSET_DELTA_AT)
            yield offset, offset + delta + 1, hashlib.blake2b(content[position:end], digest_size=8).digest()
            position = end


def compare(partition: Partition, folders: dict[int, Path]) -> Iterator[str]:
    """Differences between the replicas of a partition, by node, up to the end of the shortest."""
    name = f"{partition[0]}-{partition[1]}"
    logs = {node: list(stored_batches(folder / name)) for node, folder in folders.items()}
    ends = {node: log[-1][1] if log else 0 for node, log in logs.items()}
    if len(set(ends.values())) > 1:
        yield f"{name}: replicas end at different offsets after a clean stop: {ends}"
    (first, expected), *others = logs.items()
    for node, log in others:
        stored = {offset: (end, digest) for offset, end, digest in log}
        for offset, end, digest in expected:
            if offset >= ends[node]:
                break
            if stored.get(offset) != (end, digest):
                yield f"{name}: nodes {first} and {node} differ in the batch at offset {offset}"
                break
