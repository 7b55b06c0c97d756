"""The swap file of a compaction: the new segment and those it replaces."""

import json
from dataclasses import dataclass

from runnel.batch.checksum import crc32c


class DamagedSwap(Exception):
    """The swap file is incomplete: the swap was not committed."""


@dataclass(slots=True)
class Swap:
    """The base offsets of the new segment (None if nothing is left) and of the ones it replaces."""

    base_offset: int | None
    replaced: list[int]


def encode_swap(swap: Swap) -> bytes:
    body = json.dumps([swap.base_offset, swap.replaced]).encode()
    return f"{crc32c(body):08x}\n".encode() + body


def decode_swap(data: bytes) -> Swap:
    """Decode a swap file; DamagedSwap if it is incomplete or corrupt."""
    checksum, _, body = data.partition(b"\n")
    if checksum != f"{crc32c(body):08x}".encode():
        raise DamagedSwap("it does not match its checksum")
    base_offset, replaced = json.loads(body)
    return Swap(base_offset, replaced)
