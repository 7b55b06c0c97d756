"""Compression types, and decompression that is safe against decompression bombs."""

from enum import IntEnum
from struct import Struct

import cramjam

from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.header import Buffer
from runnel.model.limits import DECOMPRESSED_BATCH_BYTES_MAX


class Compression(IntEnum):
    """Compression types; the value is the one in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> "Compression":
        """The codec of a config value; topics use `uncompressed` where producers use `none`."""
        if name == "uncompressed":
            return cls.NONE
        return cls[name.upper()]


XERIAL_MAGIC = b"\x82SNAPPY\x00"
"""The magic bytes of snappy-java's SnappyOutputStream, whose framing most Kafka clients use."""
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 * 1024
GZIP_LEVEL_DEFAULT = 6
LZ4_LEVEL_FAST = 9
"""Kafka's default level, for which its library uses the fast compressor."""

_LENGTH = Struct(">i")
_TOO_SMALL = "failed to write whole buffer"
_DECOMPRESS_INTO = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def compress(data: Buffer, compression: int, level: int | None = None) -> Buffer:
    """Compress the data; `level` is specific to the codec, None is Kafka's default."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return bytes(
                cramjam.gzip.compress(data, GZIP_LEVEL_DEFAULT if level is None or level < 0 else level)
            )
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            # Java clients reject frames with linked blocks.
            compressor = cramjam.lz4.Compressor(
                level=0 if level is None or level == LZ4_LEVEL_FAST else level,
                content_checksum=False,
                block_linked=False,
            )
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
        case _:
            raise ValueError(f"unknown compression type {compression}")


def decompress(data: Buffer, compression: int, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> Buffer:
    """Decompress the data; CorruptBatch if it is malformed, BatchInflatesTooFar beyond `max_bytes`."""
    if compression == Compression.NONE:
        return data
    try:
        if compression == Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        return _decompress_growing(data, compression, max_bytes)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{Compression(compression).name.lower()} data is corrupt: {error}") from None


def _decompress_growing(data: Buffer, compression: int, max_bytes: int) -> Buffer:
    # Frames need not state their decompressed size, so the output buffer grows until the data fits or exceeds
    # the limit: a claimed size is never allocated. Untouched pages of a large buffer cost nothing.
    try:
        decompress_into = _DECOMPRESS_INTO[Compression(compression)]
    except (KeyError, ValueError):
        raise CorruptBatch(f"unknown compression type {compression}") from None
    capacity = min(max(8 * len(data), 64 * 1024), max_bytes)
    while True:
        output = bytearray(capacity)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
        else:
            return memoryview(output)[:size]
        if capacity >= max_bytes:
            raise BatchInflatesTooFar(f"the records decompress to more than {max_bytes} bytes")
        capacity = min(4 * capacity, max_bytes)


def _compress_xerial(data: Buffer) -> bytes:
    parts: list[Buffer] = [XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    blocks: list[Buffer] = []
    total = 0
    position = len(XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < 4:
            raise CorruptBatch("snappy data is truncated inside a block length")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length <= 0 or length > len(view) - position:
            raise CorruptBatch(f"invalid snappy block length {length}")
        block = _decompress_snappy_block(view[position : position + length], max_bytes - total)
        total += len(block)
        blocks.append(block)
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    # Snappy states its decompressed size up front, and compresses 64 bytes to 3 at best.
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes:
        raise BatchInflatesTooFar(f"the records decompress to more than {max_bytes} bytes")
    if size > 64 * len(block):
        raise CorruptBatch(f"{len(block)} bytes of snappy cannot decompress to {size}")
    return bytes(cramjam.snappy.decompress_raw(block))
