"""Whether invalid bytes at the end of a log can be a write that the end of its process interrupted.

A write appends whole batches, from the first byte to the last: if it is interrupted, the last batch is
incomplete. Anything else is damage, such as a complete batch with a wrong checksum, or an intact batch behind
an invalid one.
"""

import re
from collections.abc import Iterator

from runnel.batch.checksum import crc32c
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import CRC_START, HEADER_BYTES, MAGIC, MAGIC_POSITION, crc_is_valid, read_header
from runnel.disk.walk import CHUNK_BYTES
from runnel.log.rolling import RELATIVE_OFFSET_MAX
from runnel.ports.files import File

_HIGH_BYTES = 4
_CANDIDATES_MAX = 100
"""How many times bytes of records may look like a batch."""


def is_torn_write(file: File, position: int, end: int, next_offset: int) -> bool:
    """Can these bytes, which are not a valid batch, be the beginning of one, or space never written to?

    `next_offset` is that of the batch.
    """
    if end - position < HEADER_BYTES:
        return True
    try:
        header = read_header(file.pread(HEADER_BYTES, position))
    except CorruptBatch:
        return not any(any(chunk) for _, chunk in _chunks(file, position, end))
    if position + header.size_bytes <= end:
        return False
    # Not if only its length is wrong, which the checksum does not cover.
    return not (
        _crc(file, position + CRC_START, end) == header.crc
        or _has_batch(file, position + 1, end, next_offset)
    )


def _has_batch(file: File, position: int, end: int, first_offset: int) -> bool:
    """Is there an intact batch anywhere in these bytes, from this offset on?"""
    last_offset = first_offset + RELATIVE_OFFSET_MAX
    high = {offset.to_bytes(8)[:_HIGH_BYTES] for offset in (first_offset, last_offset)}
    pattern = b"(?=(?:%b).{%d}%c)" % (b"|".join(map(re.escape, high)), MAGIC_POSITION - _HIGH_BYTES, MAGIC)
    candidates = 0
    for start, chunk in _chunks(file, position, end, overlap=MAGIC_POSITION):
        for match in re.finditer(pattern, chunk, re.DOTALL):
            at = start + match.start()
            try:
                header = read_header(file.pread(HEADER_BYTES, at))
            except CorruptBatch:
                continue
            if at + header.size_bytes <= end and first_offset <= header.base_offset <= last_offset:
                candidates += 1
                if crc_is_valid(file.pread(header.size_bytes, at), 0, header):
                    return True
                if candidates == _CANDIDATES_MAX:
                    return False
    return False


def _crc(file: File, position: int, end: int) -> int:
    crc = 0
    for _, chunk in _chunks(file, position, end):
        crc = crc32c(chunk, crc)
    return crc


def _chunks(file: File, position: int, end: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of each chunk, and with it the first bytes of the next one."""
    for start in range(position, end, CHUNK_BYTES):
        yield start, file.pread(min(CHUNK_BYTES + overlap, end - start), start)
