"""Iterates over the batches of a segment file."""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, BatchHeader, Buffer, crc_is_valid, read_header
from runnel.ports.files import File

if TYPE_CHECKING:
    from runnel.disk.batch_cipher import BatchCipher

CHUNK_BYTES = 1024 * 1024
"""Read size for scanning all batches."""
PROBE_BYTES = 8 * 1024
"""Read size for scanning a few batches after an index entry: a little more than an index interval."""

_BOUNDS = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta, which suffice to find a batch."""
_BOUNDS_BYTES = _BOUNDS.size
_unpack_bounds = _BOUNDS.unpack_from


def walk_headers_of_file(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position` up to `end`; CorruptBatch if one is invalid."""
    chunk = b""
    chunk_start = position
    while position < end:
        local = position - chunk_start
        if local < 0 or local + HEADER_BYTES > len(chunk):
            chunk_start, local = position, 0
            chunk = file.pread(min(chunk_bytes, end - position), position)
            if len(chunk) < HEADER_BYTES:
                raise CorruptBatch(f"the file ends inside the batch at position {position}")
        header = read_header(chunk, local)
        if position + header.size_bytes > end:
            raise CorruptBatch(f"the batch at position {position} is incomplete")
        yield position, header
        position += header.size_bytes


def walk_sound_batches(
    file: File, position: int, end: int, cipher: "BatchCipher | None"
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch as it is stored; CorruptBatch at the first invalid one."""
    for at, header, batch in _walk_stored(file, position, end):
        if cipher is not None:
            cipher.decrypt(batch)
        elif not crc_is_valid(batch, 0, header):
            raise CorruptBatch(f"the batch at position {at} does not match its checksum")
        yield at, header, batch


def walk_clear_batches(
    file: File, position: int, end: int, cipher: "BatchCipher | None"
) -> Iterator[tuple[int, BatchHeader, Buffer]]:
    """(end position, header, bytes) of each batch, decrypted; CorruptBatch at the first invalid one."""
    if cipher is None:
        for at, header, batch in walk_sound_batches(file, position, end, None):
            yield at + len(batch), header, batch
    else:
        for at, _, stored in _walk_stored(file, position, end):
            clear = cipher.decrypt(stored)
            yield at + len(stored), read_header(clear), clear


def _walk_stored(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    chunk = memoryview(b"")
    chunk_start = position
    while position < end:
        local = position - chunk_start
        if local + HEADER_BYTES > len(chunk):
            chunk_start, local = position, 0
            chunk = memoryview(file.pread(min(CHUNK_BYTES, end - position), position))
        header = read_header(chunk, local)
        size = header.size_bytes
        if position + size > end:
            raise CorruptBatch(f"the batch at position {position} is incomplete")
        if local + size > len(chunk):
            chunk_start, local = position, 0
            chunk = memoryview(file.pread(min(max(CHUNK_BYTES, size), end - position), position))
        if local + size > len(chunk):
            raise CorruptBatch(f"the file ends inside the batch at position {position}")
        yield position, header, chunk[local : local + size]
        position += size


def check_sums(chunk: bytes, position: int) -> None:
    """Verify the whole batches at the start of a chunk, which was read at `position`. Raises CorruptBatch."""
    start = 0
    while len(chunk) - start >= HEADER_BYTES:
        header = read_header(chunk, start)
        if start + header.size_bytes > len(chunk):
            return
        if not crc_is_valid(chunk, start, header):
            raise CorruptBatch(f"the batch at position {position + start} does not match its checksum")
        start += header.size_bytes


def find_batch(file: File, position: int, end: int, offset: int) -> tuple[int, int, int]:
    """(position, size, next offset) of the first batch from `position` on that does not end before `offset`.

    If all end before it: (end, 0, the offset after the last one, or `offset` if none was examined).
    """
    next_offset = offset
    for batch_position, size, _, next_offset in walk_batch_bounds(file, position, end):
        if next_offset > offset:
            return batch_position, size, next_offset
    return end, 0, next_offset


def whole_beginning(chunk: bytes) -> tuple[int, int]:
    """(bytes, next offset) of the complete batches at the start of a chunk; (0, 0) without any."""
    size = next_offset = 0
    while len(chunk) - size >= _BOUNDS_BYTES:
        base_offset, length, magic, last_offset_delta = _unpack_bounds(chunk, size)
        after = size + length + 12
        if magic != 2 or after - size < HEADER_BYTES or after > len(chunk):
            break
        size, next_offset = after, base_offset + last_offset_delta + 1
    return size, next_offset


def walk_batch_bounds(file: File, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, size, base offset, next offset) of each batch from `position` up to `end`."""
    chunk = b""
    chunk_start = position
    while position < end:
        local = position - chunk_start
        if local + _BOUNDS_BYTES > len(chunk):
            chunk_start, local = position, 0
            chunk = file.pread(PROBE_BYTES, position)
            if len(chunk) < _BOUNDS_BYTES:
                raise CorruptBatch(f"the file ends inside the batch at position {position}")
        base_offset, length, magic, last_offset_delta = _unpack_bounds(chunk, local)
        size = length + 12
        if magic != 2 or size < HEADER_BYTES or position + size > end:
            raise CorruptBatch(f"there is no batch at position {position}")
        yield position, size, base_offset, base_offset + last_offset_delta + 1
        position += size
