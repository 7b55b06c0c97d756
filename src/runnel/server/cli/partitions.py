"""Text form of partitions: orders:0,2 payments:0."""

from collections.abc import Iterable
from itertools import groupby

from runnel.model.ids import TopicPartition


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Topics with their partition numbers, in the format of `--topic`."""
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return " ".join(f"{topic}:{','.join(str(name.partition) for name in names)}" for topic, names in by_topic)
