"""The checkpoint files of a broker's data folder, each empty where it is missing or damaged."""

from pathlib import Path

from runnel.log.checkpoints import DamagedCheckpoint, decode_offsets
from runnel.log.manifest import DamagedManifest, LogEntry, decode_manifest
from runnel.model.ids import TopicPartition

KAFKA_CLEANED = "cleaner-offset-checkpoint"
"""How far Kafka has compacted each partition; Runnel has a file in the folder of each partition instead."""


def read_manifest(path: Path) -> dict[TopicPartition, LogEntry]:
    """The state of each log at the last clean shutdown."""
    try:
        return decode_manifest(path.read_bytes())
    except (OSError, DamagedManifest):
        return {}


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """One offset per partition: recovery points, log start offsets, or how far logs are compacted."""
    try:
        return decode_offsets(path.read_bytes())
    except (OSError, DamagedCheckpoint):
        return {}
