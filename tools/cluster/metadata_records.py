"""The metadata log of a node: which brokers were fenced, and which partitions elected a leader."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runnel.batch.header import walk_headers
from runnel.batch.records import iterate_records
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    decode_metadata_record,
)

FOLDER = "__cluster_metadata-0"
FENCED = 1
UNCHANGED = -2


@dataclass(slots=True)
class Changes:
    """What the controllers decided after some offset of the metadata log."""

    fencings: list[int]
    elections: int
    in_sync_changes: int
    quorum_epochs: set[int]
    end_offset: int


def changes_since(data: Path, offset: int) -> Changes:
    """All decisions in the log of one node from `offset` on."""
    changes = Changes([], 0, 0, set(), offset)
    for at, epoch, record in records(data / FOLDER):
        if at < offset:
            continue
        changes.end_offset = at + 1
        changes.quorum_epochs.add(epoch)
        match record:
            case BrokerRegistrationChangeRecord() if record.fenced == FENCED:
                changes.fencings.append(record.broker_id)
            case FenceBrokerRecord():
                changes.fencings.append(record.id)
            case PartitionChangeRecord():
                changes.elections += record.leader != UNCHANGED
                changes.in_sync_changes += record.isr is not None
            case _:
                pass
    return changes


def records(folder: Path) -> Iterator[tuple[int, int, object]]:
    """(offset, epoch, record) of the log; control records are left out."""
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        for position, header in walk_headers(content):
            if header.is_control:
                continue
            batch = content[position : position + header.size_bytes]
            for record in iterate_records(batch):
                if record.value is not None:
                    yield record.offset, header.leader_epoch, decode_metadata_record(record.value)
