"""A snapshot of the image as record batches, in Kafka's format of `.checkpoint` files.

control batch  SnapshotHeader   the timestamp of the last change in the snapshot
data batches   records of the image, each of bounded size; offsets count from 0
control batch  SnapshotFooter   without it the snapshot is incomplete
"""

from collections.abc import Iterable, Iterator
from struct import Struct

from runnel.batch.build import build_batch
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import crc_is_valid, read_header
from runnel.batch.records import Record, iterate_records
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.record_versions import record_version
from runnel.controller.snapshot import records_of
from runnel.schemas.control import SnapshotFooterRecord, SnapshotHeaderRecord
from runnel.schemas.metadata import (
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from runnel.wire import encoded

HEADER_TYPE = 3
FOOTER_TYPE = 4
BATCH_BYTES_MAX = 256 * 1024
"""Records are collected up to this size: a batch must fit into the memory of the nodes that read it."""

_KEY = Struct(">hh")


def snapshot_batches(
    image: MetadataImage, timestamp_ms: int, epoch: int, header: bytearray | None = None
) -> Iterator[bytearray]:
    """The batches of a snapshot of this image; `header` is the first one if it also describes the voters."""
    if header is None:
        first = encoded(SnapshotHeaderRecord(0, timestamp_ms), 0)
        header = _control(HEADER_TYPE, first, 0, timestamp_ms, epoch)
    yield header
    offset, size_bytes, level = read_header(header).next_offset, 0, image.metadata_level
    records: list[Record] = []
    for record in records_of(image):
        value = encode_metadata_record(record, record_version(record, level))
        records.append(Record(0, timestamp_ms, None, value))
        size_bytes += len(value)
        if size_bytes >= BATCH_BYTES_MAX:
            yield build_batch(records, base_offset=offset, leader_epoch=epoch)
            offset += len(records)
            records, size_bytes = [], 0
    if records:
        yield build_batch(records, base_offset=offset, leader_epoch=epoch)
        offset += len(records)
    yield _control(FOOTER_TYPE, encoded(SnapshotFooterRecord(), 0), offset, timestamp_ms, epoch)


def read_snapshot(batches: Iterable[memoryview]) -> Iterator[list[MetadataRecord]]:
    """The records of each batch. BadMetadata unless the snapshot is complete and undamaged."""
    expected_type = HEADER_TYPE
    is_complete = False
    for batch in batches:
        header = read_header(batch)
        if not crc_is_valid(batch, 0, header):
            raise BadMetadata(f"the snapshot's batch at offset {header.base_offset} is corrupt")
        if is_complete:
            raise BadMetadata("the snapshot continues after its footer")
        if header.is_control:
            kind = _control_type(batch)
            if expected_type == HEADER_TYPE and kind != HEADER_TYPE:
                raise BadMetadata("the snapshot does not begin with a header")
            expected_type = FOOTER_TYPE
            is_complete = kind == FOOTER_TYPE
        elif expected_type == HEADER_TYPE:
            raise BadMetadata("the snapshot does not begin with a header")
        else:
            yield [metadata_record(stored.value) for stored in iterate_records(batch)]
    if not is_complete:
        raise BadMetadata("the snapshot has no footer: it is incomplete")


def metadata_record(value: bytes | memoryview | None) -> MetadataRecord:
    """Decode one record of the log or of a snapshot; BadMetadata if this release does not know it."""
    if value is None:
        raise BadMetadata("a metadata record has no value")
    record = decode_metadata_record(value)
    if not isinstance(record, MetadataRecord):
        raise BadMetadata(f"the metadata log was written by a newer release: {record}")
    return record


def _control(kind: int, value: bytes, offset: int, timestamp_ms: int, epoch: int) -> bytearray:
    record = Record(0, timestamp_ms, _KEY.pack(0, kind), value)
    return build_batch([record], base_offset=offset, leader_epoch=epoch, control=True)


def _control_type(batch: memoryview) -> int:
    record = next(iterate_records(batch), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch("a control record is too short")
    kind: int = _KEY.unpack_from(record.key)[1]
    return kind
