"""The 61-byte header of a record batch (magic 2), read once and patched in place.

    base_offset 8 · batch_length 4 · leader_epoch 4 · magic 1 · crc 4 | attributes 2 · last_offset_delta 4 ·
    base_timestamp 8 · max_timestamp 8 · producer_id 8 · producer_epoch 2 · base_sequence 4 · record_count 4

The CRC-32C covers everything right of the bar, so the broker sets base offset and leader epoch without
recomputing it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from runnel.batch.checksum import crc32c
from runnel.batch.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""Base offset and length, which `batch_length` does not include."""
BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAGIC = 2
MAGIC_POSITION = 16
CRC_START = 21
"""The checksum covers the batch from here to its end."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""KIP-534: `base_timestamp` is the time after which tombstones of this batch may be removed."""

NO_TIMESTAMP = -1
NO_PRODUCER = -1
NO_SEQUENCE = -1
SEQUENCE_MAX = 2**31 - 1

_HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")

unpack_header = _HEADER.unpack_from
"""The fields in the order of `BatchHeader`, unchecked."""

_pack_offset_and_epoch = Struct(">qii").pack_into


@dataclass(slots=True)
class BatchHeader:
    """One record batch, without its records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def uses_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones in this batch may be removed; set by the cleaner."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap from 2³¹-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The batch header at `position`; CorruptBatch if it is invalid. The checksum is not verified."""
    try:
        header = BatchHeader(*unpack_header(buffer, position))
    except StructError:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too short for a batch header") from None
    if header.magic != MAGIC:
        raise CorruptBatch(f"unsupported magic {header.magic} at position {position}")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"invalid batch length {header.batch_length} at position {position}")
    return header


def walk_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Each complete batch with its position; a truncated last one is skipped, garbage raises CorruptBatch."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        next_position = position + LENGTH_PREFIX_BYTES + header.batch_length
        if next_position > end:
            return
        yield position, header
        position = next_position


def pack_header(header: BatchHeader) -> bytes:
    """The encoded header."""
    return _HEADER.pack(
        header.base_offset,
        header.batch_length,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def seal(header: BatchHeader, payload: Buffer) -> bytearray:
    """A complete batch from a header and its (compressed) records; sets the header's length and checksum."""
    header.batch_length = BATCH_LENGTH_MIN + len(payload)
    batch = bytearray(pack_header(header))
    batch += payload
    header.crc = checksum(batch, 0, len(batch))
    _CRC.pack_into(batch, CRC_START - 4, header.crc)
    return batch


def checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    """The CRC-32C computed over the batch at `position`."""
    crc: int = crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes])
    return crc


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch is complete and matches its checksum."""
    end = position + LENGTH_PREFIX_BYTES + header.batch_length
    return end <= len(buffer) and crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch of the batch at `position`; the checksum covers neither."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def patch_whole_batch(buffer: memoryview, base_offset: int, leader_epoch: int) -> None:
    """`patch_offset_and_epoch` for a buffer that is one whole batch: what is between them is its length."""
    _pack_offset_and_epoch(buffer, 0, base_offset, len(buffer) - LENGTH_PREFIX_BYTES, leader_epoch)


def restamp(buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> None:
    """Set LogAppendTime in the bytes and in `header`, and recompute the checksum."""
    header.attributes |= LOG_APPEND_TIME
    header.max_timestamp = timestamp_ms
    _ATTRIBUTES.pack_into(buffer, position + 21, header.attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, timestamp_ms)
    header.crc = checksum(buffer, position, header.size_bytes)
    _CRC.pack_into(buffer, position + CRC_START - 4, header.crc)
