"""Zigzag-encoded variable-length integers, as used in records."""

from runnel.batch.errors import CorruptBatch

VARINT_BYTES_MAX = 10
"""The length of a 64-bit value."""


def encode_varint(value: int) -> bytes:
    """A signed integer, zigzag-encoded, seven bits per byte, low bits first."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    return _encode(value)


def _encode(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    if zigzag < 1 << 14 and zigzag >= 0x80:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    if zigzag < 1 << 21 and zigzag >= 0x80:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14))
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """(value, position after it); CorruptBatch if it is truncated or too long."""
    try:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        zigzag = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            position += 1
            byte = buffer[position]
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            if shift > 7 * VARINT_BYTES_MAX:
                raise CorruptBatch("a varint is longer than ten bytes")
    except IndexError:
        raise CorruptBatch("the records are truncated inside a varint") from None
    return (zigzag >> 1) ^ -(zigzag & 1), position + 1


_SMALL = [_encode(value) for value in range(1024)]
