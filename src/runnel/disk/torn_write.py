"""Whether invalid bytes at the end of a log can be a write that the end of its process interrupted.

A write appends whole batches, from the first byte to the last: if it is interrupted, the last batch is
incomplete. Anything else is damage, such as a complete batch with a wrong checksum, or an intact batch behind
an invalid one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runnel.batch.checksum import crc32c
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import CRC_START, HEADER_BYTES, MAGIC, MAGIC_POSITION, BatchHeader, read_header
from runnel.disk.walk import CHUNK_BYTES
from runnel.log.rolling import RELATIVE_OFFSET_MAX
from runnel.model.limits import REQUEST_BYTES_MAX
from runnel.ports.files import File

if TYPE_CHECKING:
    from runnel.disk.batch_cipher import BatchCipher

BATCH_BYTES_MAX = REQUEST_BYTES_MAX
"""No client can send a larger batch: its length is wrong."""
_HIGH_BYTES = 4
_MAGIC = bytes([MAGIC])
_CANDIDATES_MAX = 100
"""How many times bytes of records may look like a batch."""
_CHECKS_MAX = 4
"""How many times all bytes may be read in order to check such batches."""
_ZEROS = bytes(CHUNK_BYTES)


def is_torn_write(
    file: File, position: int, end: int, next_offset: int, cipher: "BatchCipher | None" = None
) -> bool:
    """Can these bytes, which are not a valid batch, be the beginning of one, or space never written to?

    `next_offset` is that of the batch.
    """
    if end - position < HEADER_BYTES:
        return True
    try:
        header = read_header(file.pread(HEADER_BYTES, position))
    except CorruptBatch:
        return all(chunk == _ZEROS[: len(chunk)] for _, chunk in _chunks(file, position, end))
    if position + header.size_bytes <= end or header.size_bytes > BATCH_BYTES_MAX:
        return False
    # Not if only its length is wrong, which the checksum does not cover.
    return not (
        _is_intact(file, position, end, header, cipher)
        or _has_batch(file, position + 1, end, next_offset, cipher)
    )


def _has_batch(file: File, position: int, end: int, first_offset: int, cipher: "BatchCipher | None") -> bool:
    """Is there an intact batch anywhere in these bytes, from this offset on?"""
    last_offset = first_offset + RELATIVE_OFFSET_MAX
    candidates_left, bytes_left = _CANDIDATES_MAX, _CHECKS_MAX * (end - position)
    for high in {offset.to_bytes(8)[:_HIGH_BYTES] for offset in (first_offset, last_offset)}:
        for start, chunk in _chunks(file, position, end, overlap=HEADER_BYTES - 1):
            for local in _places(chunk, high):
                try:
                    header = read_header(chunk, local)
                except CorruptBatch:
                    continue
                at, size_bytes = start + local, header.size_bytes
                if at + size_bytes > end or not first_offset <= header.base_offset <= last_offset:
                    continue
                candidates_left -= 1
                bytes_left -= size_bytes
                if candidates_left < 0 or bytes_left < 0:
                    return False
                if _is_intact(file, at, at + size_bytes, header, cipher):
                    return True
    return False


def _places(chunk: bytes, high: bytes) -> Iterator[int]:
    """Where a batch may begin: with these bytes of an offset, and the magic byte at its place.

    Each search skips what the other one has excluded, so that runs of zeros and the like take few steps.
    """
    local = chunk.find(high)
    while local >= 0:
        magic = chunk.find(_MAGIC, local + MAGIC_POSITION)
        if magic < 0:
            return
        if magic == local + MAGIC_POSITION:
            yield local
            local += 1
        else:
            local = magic - MAGIC_POSITION
        local = chunk.find(high, local)


def _is_intact(
    file: File, position: int, end: int, header: BatchHeader, cipher: "BatchCipher | None"
) -> bool:
    """Are these bytes a batch of this header, whatever its length says?"""
    if cipher is None:
        return _crc(file, position + CRC_START, end) == header.crc
    try:
        cipher.decrypt(file.pread(end - position, position))
    except CorruptBatch:
        return False
    return True


def _crc(file: File, position: int, end: int) -> int:
    crc = 0
    for _, chunk in _chunks(file, position, end):
        crc = crc32c(chunk, crc)
    return crc


def _chunks(file: File, position: int, end: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of each chunk, and with it the first bytes of the next one."""
    for start in range(position, end, CHUNK_BYTES):
        yield start, file.pread(min(CHUNK_BYTES + overlap, end - start), start)
