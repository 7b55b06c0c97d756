"""The checkpoint files of a broker's data folder, empty if missing or damaged."""

from pathlib import Path

from runnel.log.checkpoints import DamagedCheckpoint, decode_offsets
from runnel.log.clean_shutdown import decode_clean_shutdown
from runnel.log.manifest import DamagedManifest, LogEntry, decode_manifest
from runnel.log.names import CLEAN_SHUTDOWN
from runnel.model.ids import TopicPartition

KAFKA_CLEANED = "cleaner-offset-checkpoint"
"""Kafka's cleaner checkpoint; Runnel has a file per partition instead."""


def read_manifest(path: Path) -> dict[TopicPartition, LogEntry]:
    """The state of each log at the last clean shutdown, unless another release has run since."""
    try:
        manifest = decode_manifest(path.read_bytes())
    except (OSError, DamagedManifest):
        return {}
    return manifest.logs if manifest.broker_epoch == _closing_epoch(path.parent) else {}


def _closing_epoch(folder: Path) -> int | None:
    try:
        return decode_clean_shutdown((folder / CLEAN_SHUTDOWN).read_bytes())
    except OSError:
        return None


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """One offset per partition: recovery points, log start offsets or cleaner offsets."""
    try:
        return decode_offsets(path.read_bytes())
    except (OSError, DamagedCheckpoint):
        return {}
