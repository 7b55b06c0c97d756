"""The starting offsets of an archive. The tables are authoritative, not the checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path

from runnel.client.offsets import EARLIEST
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadCheckpoint

Offsets = Mapping[TopicPartition, int]


def starting_offsets(partitions: list[TopicPartition], archived: Offsets) -> str:
    """The startingOffsets of a new checkpoint: resume in archived partitions, read all of the others."""
    starts: dict[str, dict[str, int]] = {}
    for partition in partitions:
        offset = archived.get(partition, EARLIEST)
        starts.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(starts) if starts else "earliest"


def checkpointed_offsets(folder: str) -> dict[TopicPartition, int]:
    """The offsets of a local checkpoint; empty if it is new or remote."""
    commits, offsets = Path(folder) / "commits", Path(folder) / "offsets"
    numbers = (
        [int(file.name) for file in commits.glob("*") if file.name.isdigit()] if commits.is_dir() else []
    )
    if not numbers:
        return {}
    try:
        # A line with the version, one about the batch, and one per source.
        *_, source = (offsets / str(max(numbers))).read_text("utf-8").splitlines()
        return {
            TopicPartition(topic, int(number)): offset
            for topic, partitions in json.loads(source).items()
            for number, offset in partitions.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise BadCheckpoint(f"the checkpoint {folder} cannot be read: {error}") from error


def behind(checkpointed: Offsets, archived: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges that the checkpoint is ahead of the tables."""
    return {
        partition: (archived.get(partition, 0), offset)
        for partition, offset in checkpointed.items()
        if offset > archived.get(partition, 0)
    }
