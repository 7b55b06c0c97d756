"""The clean shutdown manifest, with which the next start opens no files of partitions.

    runnel-manifest <version> <crc-32c of what follows, hex> \\n <JSON: broker epoch, one list per log>

It is valid because it is removed durably before anything that it describes can change, by Runnel. Apache
Kafka, which may run on the same folder in between, does not know it, but removes or replaces the file that
marks a clean shutdown: the manifest is valid only beside the one with the same broker epoch.
"""

import json
from dataclasses import dataclass, field

from runnel.batch.checksum import crc32c
from runnel.model.ids import TopicPartition, id_from_text, id_text

VERSION = 2
_VERSION_WITHOUT_EPOCH = 1
"""Of earlier releases, whose manifest was the only mark of a clean shutdown."""
_TITLE = "runnel-manifest"


class DamagedManifest(Exception):
    """The manifest is damaged; recovery reads the files instead."""


@dataclass(slots=True)
class SegmentEntry:
    """A segment at shutdown."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp: int
    max_timestamp: int
    is_encrypted: bool = False
    """Does it have a key file?"""


@dataclass(slots=True)
class LogEntry:
    """A log at shutdown."""

    topic_id: bytes
    log_start_offset: int
    has_producers: bool
    """Is there a producer snapshot at the end offset, or is the producer state empty?"""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    segments: list[SegmentEntry] = field(default_factory=list)


@dataclass(slots=True)
class Manifest:
    """All logs of a data directory at shutdown."""

    logs: dict[TopicPartition, LogEntry]
    broker_epoch: int | None
    """The epoch in the file beside it that marks the clean shutdown; None if there must be no such file."""


def encode_manifest(logs: dict[TopicPartition, LogEntry], broker_epoch: int) -> bytes:
    rows = [
        [
            name.topic,
            name.partition,
            id_text(entry.topic_id),
            entry.log_start_offset,
            entry.has_producers,
            entry.epochs,
            [
                (s.base_offset, s.next_offset, s.size_bytes, s.first_timestamp, s.max_timestamp)
                + ((True,) if s.is_encrypted else ())
                for s in entry.segments
            ],
        ]
        for name, entry in logs.items()
    ]
    body = json.dumps([broker_epoch, rows], separators=(",", ":")).encode()
    return f"{_TITLE} {VERSION} {crc32c(body):08x}\n".encode() + body


def decode_manifest(data: bytes) -> Manifest:
    """Decode a manifest; DamagedManifest if it is incomplete or corrupt."""
    title, _, body = data.partition(b"\n")
    versions = {
        f"{_TITLE} {version} {crc32c(body):08x}".encode(): version
        for version in (VERSION, _VERSION_WITHOUT_EPOCH)
    }
    if title not in versions:
        raise DamagedManifest("it does not match its checksum")
    try:
        decoded = json.loads(body)
        broker_epoch, rows = decoded if versions[title] == VERSION else (None, decoded)
        logs = {
            TopicPartition(topic, partition): LogEntry(
                id_from_text(topic_id),
                log_start_offset,
                has_producers,
                [(epoch, start) for epoch, start in epochs],
                [SegmentEntry(*segment) for segment in segments],
            )
            for topic, partition, topic_id, log_start_offset, has_producers, epochs, segments in rows
        }
    except (ValueError, TypeError) as error:
        raise DamagedManifest(str(error)) from None
    return Manifest(logs, broker_epoch)
