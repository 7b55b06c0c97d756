"""A compaction's last step written down: which segment takes the place of which."""

import json
from dataclasses import dataclass

from runnel.batch.checksum import crc32c


class DamagedSwap(Exception):
    """The bytes are not a whole swap: it was never decided."""


@dataclass(slots=True)
class Swap:
    """The base offsets of the new segment (None if nothing is left) and of the ones it replaces."""

    base_offset: int | None
    replaced: list[int]


def encode_swap(swap: Swap) -> bytes:
    body = json.dumps([swap.base_offset, swap.replaced]).encode()
    return f"{crc32c(body):08x}\n".encode() + body


def decode_swap(data: bytes) -> Swap:
    """The swap in a file's bytes; DamagedSwap if it is not whole and sound."""
    checksum, _, body = data.partition(b"\n")
    if checksum != f"{crc32c(body):08x}".encode():
        raise DamagedSwap("it does not match its checksum")
    base_offset, replaced = json.loads(body)
    return Swap(base_offset, replaced)
