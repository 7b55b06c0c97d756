"""Validates batches of producers and of leaders, and converts them as the topic requires.

Usually a batch (format 2, with the timestamps and the compression of the producer) is validated by its header
and checksum alone. Three topic settings require its records: compaction (keys), a bound on old timestamps,
and a compression other than the producer's, for which records are recompressed without being parsed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from runnel.batch.checksum import crc32c
from runnel.batch.compression import GZIP_LEVEL_DEFAULT, LZ4_LEVEL_FAST, Compression, compress
from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    restamp,
    seal,
    unpack_header,
)
from runnel.batch.records import unpack_records, walk_records
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.model.limits import (
    INSPECTED_BATCH_BYTES_MAX,
    INSPECTED_RECORDS_MAX,
    NAMED_RECORDS_BYTES_MAX,
    NAMED_RECORDS_MAX,
)
from runnel.model.log_config import FOREVER, LogConfig, TimestampType

RECORD_ERRORS_MAX = 1_000
"""The maximum number of record errors in a response; a batch can have millions of records."""

_KIB = 1024
_LEVELS = {
    Compression.GZIP: ((128 * _KIB, 9), (512 * _KIB, 6), (4096 * _KIB, 2), (FOREVER, 1)),
    Compression.LZ4: ((128 * _KIB, 17), (1024 * _KIB, 8), (FOREVER, 1)),
    Compression.ZSTD: ((128 * _KIB, 22), (256 * _KIB, 15), (2048 * _KIB, 9), (8192 * _KIB, 3), (FOREVER, 1)),
}
"""Up to so many bytes, the highest level: each takes 50 to 100 ms at worst, which nothing interrupts."""

_CREATE_TIME = TimestampType.CREATE_TIME
_ZSTD = int(Compression.ZSTD)
"""The largest attributes of a batch that has no flags, only a compression."""


@dataclass(slots=True)
class ValidBatch:
    """A valid batch, to be appended with its base offset and leader epoch patched in."""

    data: memoryview
    """The batch; in the caller's memory unless it was converted. Writable unless a leader sent it."""
    header: BatchHeader
    log_append_time_ms: int
    """-1 with CreateTime."""

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def max_timestamp(self) -> int:
        return self.header.max_timestamp


@dataclass(slots=True)
class PlainBatch:
    """A batch that was validated by its header alone and has its offsets: what a log needs to write it."""

    data: memoryview
    base_offset: int
    last_offset: int
    max_timestamp: int


def takes_plain_batches(config: LogConfig) -> bool:
    """Whether the settings of a topic allow `plain_batch`: no setting looks at records or changes them."""
    return not config.inspects_records and config.message_timestamp_type is _CREATE_TIME


def plain_batch(records: memoryview, size_max: int, latest_ms: int) -> tuple[int, int] | None:
    """(last offset delta, largest timestamp) of a batch to which `validate` has nothing to object.

    One without producer id, to a topic that takes plain batches, of at most `size_max` bytes and not later
    than `latest_ms`. None means that `validate` must decide.
    """
    size = len(records)
    if not HEADER_BYTES <= size <= size_max or records.readonly:
        return None
    (
        base_offset,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        max_timestamp,
        producer_id,
        _,
        _,
        record_count,
    ) = unpack_header(records)
    if (
        producer_id == NO_PRODUCER
        and batch_length == size - LENGTH_PREFIX_BYTES
        and magic == MAGIC
        and base_offset == 0
        and 0 <= attributes <= _ZSTD
        and 0 <= last_offset_delta == record_count - 1
        and max_timestamp <= latest_ms
        and crc32c(records[CRC_START:]) == crc
    ):
        return last_offset_delta, max_timestamp
    return None


def validate(
    records: memoryview, config: LogConfig, now_ms: int, *, from_client: bool, is_keyed: bool = False
) -> ValidBatch:
    """The one batch in `records`, validated and converted as the topic requires. Raises ApiError.

    Coordinators write batches of their own making and are not held to what only clients may not do. A record
    with an idempotency key gets the time of its append, also in a topic with CreateTime.
    """
    header = sound_batch(records, config)
    if from_client:
        _refuse_what_clients_may_not_send(header)
        if config.cleanup_compact:
            _refuse_missing_keys(records, header)
    if records.readonly:
        records = memoryview(bytearray(records))
    if config.compression_type != "producer":
        records = _repack(records, header, config)
    if config.message_timestamp_type is _CREATE_TIME and not is_keyed:
        if from_client:
            _refuse_strange_timestamps(records, header, config, now_ms)
        return ValidBatch(records, header, -1)
    restamp(records, 0, header, now_ms)
    return ValidBatch(records, header, now_ms)


def validate_copies(records: memoryview, next_offset: int, epoch: int, epoch_max: int) -> list[ValidBatch]:
    """The complete batches of a leader's response, verified; an incomplete last one is ignored.

    They continue a log that ends at `next_offset` in `epoch`; there are gaps where batches were compacted.
    Batches above `epoch_max`, in which they were fetched, are left for a later fetch: before those, the logs
    may diverge (KAFKA-18723). CorruptBatch if any is damaged or out of order; none is taken then.
    """
    batches: list[ValidBatch] = []
    position = 0
    while len(records) - position >= HEADER_BYTES:
        header = read_header(records, position)
        end = position + header.size_bytes
        if end > len(records):
            break
        if crc32c(records[position + CRC_START : end]) != header.crc:
            raise CorruptBatch(f"the batch at offset {header.base_offset} does not match its checksum")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at offset {header.base_offset} follows offset {next_offset - 1}")
        if header.leader_epoch > epoch_max:
            break
        if 0 <= header.leader_epoch < epoch:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch}, after {epoch}"
            )
        next_offset, epoch = header.next_offset, max(epoch, header.leader_epoch)
        batches.append(ValidBatch(records[position:end], header, -1))
        position = end
    return batches


def sound_batch(records: memoryview, config: LogConfig) -> BatchHeader:
    """The header of the one batch, after verification of size and checksum. Raises ApiError."""
    header = _only_batch(records)
    size = len(records)
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch of {size} bytes exceeds max.message.bytes = {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch of {size} bytes exceeds segment.bytes = {config.segment_bytes}",
        )
    if crc32c(records[CRC_START:]) != header.crc:
        raise CorruptBatch("the batch does not match its checksum")
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {header.compression}"
        )
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records cannot end at offset delta {header.last_offset_delta}",
        )
    return header


def _only_batch(records: memoryview) -> BatchHeader:
    """The header, if the bytes are exactly one batch."""
    size = len(records)
    if size == 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request needs a record batch per partition")
    if size > MAGIC_POSITION and 0 <= records[MAGIC_POSITION] < MAGIC:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"records of format {records[MAGIC_POSITION]} are not taken, only record batches of format 2",
        )
    if size < HEADER_BYTES:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{size} bytes are no record batch")
    header = read_header(records)
    batch_size = header.batch_length + LENGTH_PREFIX_BYTES
    if batch_size > size:
        # Not corruption in transit, which a retry would fix, but a bug of the producer.
        raise ApiError(ErrorCode.INVALID_RECORD, f"the batch states {batch_size} bytes, {size} were sent")
    if batch_size < size:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request may hold one batch per partition only")
    return header


def _refuse_what_clients_may_not_send(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the base offset must be 0, not {header.base_offset}")
    attributes = header.attributes
    if attributes & (CONTROL | DELETE_HORIZON | LOG_APPEND_TIME):
        if attributes & LOG_APPEND_TIME:
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the broker may mark a batch as LogAppendTime")
        raise ApiError(ErrorCode.INVALID_RECORD, "only the broker may write control records")
    if header.producer_id != NO_PRODUCER and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"a producer cannot be at epoch {header.producer_epoch}, sequence {header.base_sequence}",
        )


def _refuse_missing_keys(records: memoryview, header: BatchHeader) -> None:
    raw = inspected(records, header)
    spans = enumerate(walk_records(raw, header.record_count))
    keyless = (index for index, (_, _, _, _, _, key_length, _, _) in spans if key_length < 0)
    batch_indexes = list(islice(keyless, RECORD_ERRORS_MAX))
    if batch_indexes:
        why = f"record {batch_indexes[0]} has no key, which a compacted topic cannot do without"
        raise RecordValidationError(ErrorCode.INVALID_RECORD, why, batch_indexes)


def _refuse_strange_timestamps(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest:
        why = (
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead of {now_ms}"
        )
        raise RecordValidationError(ErrorCode.INVALID_TIMESTAMP, why, _ahead_of(latest, records, header))
    if config.message_timestamp_before_max_ms < FOREVER:
        earliest = now_ms - config.message_timestamp_before_max_ms
        moments = _timestamps(inspected(records, header), header)
        behind = (index for index, moment in moments if moment < earliest and moment != NO_TIMESTAMP)
        batch_indexes = list(islice(behind, RECORD_ERRORS_MAX))
        if batch_indexes:
            why = f"a timestamp is more than message.timestamp.before.max.ms behind {now_ms}"
            raise RecordValidationError(ErrorCode.INVALID_TIMESTAMP, why, batch_indexes)


def _ahead_of(latest: int, records: memoryview, header: BatchHeader) -> list[int]:
    """The records with later timestamps, as far as finding them is cheap."""
    try:
        raw = unpack_records(records, header, NAMED_RECORDS_BYTES_MAX)
    except BatchInflatesTooFar:
        return []
    first = islice(_timestamps(raw, header), NAMED_RECORDS_MAX)
    return [index for index, moment in first if moment > latest]


def inspected(records: memoryview, header: BatchHeader) -> bytes:
    """The records of a batch, which are validated one by one. Raises ApiError if that takes too long."""
    if header.record_count > INSPECTED_RECORDS_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.record_count} records; {INSPECTED_RECORDS_MAX} is the limit for a topic "
            "that is compacted, or has dedup.window.ms or message.timestamp.before.max.ms",
        )
    return unpack_records(records, header, INSPECTED_BATCH_BYTES_MAX)


def _timestamps(raw: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """(index in the batch, timestamp) of each record; timestamps need not ascend."""
    for index, (_, _, delta, _, _, _, _, _) in enumerate(walk_records(raw, header.record_count)):
        yield index, header.base_timestamp + delta


def _repack(records: memoryview, header: BatchHeader, config: LogConfig) -> memoryview:
    """The batch with the compression of the topic; the record bytes are unchanged."""
    wanted = Compression.from_name(config.compression_type)
    if header.compression == wanted:
        return records
    raw = unpack_records(records, header, INSPECTED_BATCH_BYTES_MAX)
    payload = compress(raw, wanted, _level(wanted, config, len(raw)))
    header.attributes = header.attributes & ~COMPRESSION_MASK | wanted
    batch = seal(header, payload)
    if len(batch) > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch takes {len(batch)} bytes with compression {config.compression_type}, "
            f"max.message.bytes is {config.max_message_bytes}",
        )
    return memoryview(batch)


def _level(compression: Compression, config: LogConfig, size_bytes: int) -> int | None:
    """The topic's level, or a lower one if that would keep other clients waiting."""
    match compression:
        case Compression.GZIP:
            level = config.compression_gzip_level
            level = level if level > 0 else GZIP_LEVEL_DEFAULT
        case Compression.LZ4:
            level = config.compression_lz4_level
            if level == LZ4_LEVEL_FAST:
                return level
        case Compression.ZSTD:
            level = config.compression_zstd_level
        case _:
            return None
    return min(level, next(most for bytes_max, most in _LEVELS[compression] if size_bytes <= bytes_max))
