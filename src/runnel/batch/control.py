"""Control batches: transaction markers, which are not delivered to applications."""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from runnel.batch.build import build_batch
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import Buffer
from runnel.batch.records import Record, iterate_records

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


@dataclass(slots=True)
class EndMarker:
    """A transaction marker: the end of a transaction as its coordinator wrote it to a partition."""

    committed: bool
    coordinator_epoch: int


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """The transaction marker in this control batch, or None if it is another control record."""
    record = next(iterate_records(batch), None)
    if record is None:
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except StructError:
        raise CorruptBatch("a control record is too short") from None
    return EndMarker(kind == COMMIT, coordinator_epoch)


def build_end_marker(
    marker: EndMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    key = _KEY.pack(0, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
