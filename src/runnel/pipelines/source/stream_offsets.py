"""The offsets of a stream in a checkpoint of Spark.

    {"orders": {"0": 5, "1": 7}, "orders id 3JxXhc7rTfWq0gL1mJ0m5w": {}}

Offsets are in the JSON format of Spark's Kafka connector. The id of each topic is stored in an additional
key that is not a valid topic name and has no partitions, so that readers of offsets, including older
versions of this source, ignore it. Checkpoints of such versions and topics of brokers before Kafka 2.8 have
no ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runnel.model.ids import NO_ID, TopicPartition, id_from_text, id_text
from runnel.pipelines.source.planning import from_json, to_json

Table = dict[str, dict[str, int]]

_ID_FOLLOWS = " id "


@dataclass(slots=True)
class StreamOffsets:
    """Offsets, and the ids of their topics."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    """The known ids."""

    @classmethod
    def of(cls, offsets: dict[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> "StreamOffsets":
        """The offsets, with the ids of their topics as far as known."""
        names = {partition.topic for partition in offsets}
        known = {name: topic_id for name, topic_id in topic_ids.items() if name in names}
        return cls(offsets, {name: topic_id for name, topic_id in known.items() if topic_id != NO_ID})

    @classmethod
    def from_json(cls, table: Mapping[str, Mapping[str, int]]) -> "StreamOffsets":
        """The inverse of `to_json`, also for checkpoints of older versions."""
        names = (name.partition(_ID_FOLLOWS) for name in table)
        return cls(from_json(table), {topic: id_from_text(text) for topic, mark, text in names if mark})

    def to_json(self) -> Table:
        """Always in the same order: Spark compares offsets as text."""
        table = to_json(self.offsets)
        for topic, topic_id in sorted(self.topic_ids.items()):
            table[f"{topic}{_ID_FOLLOWS}{id_text(topic_id)}"] = {}
        return table


@dataclass(slots=True)
class Changes:
    """Changes of the partitions of a stream."""

    new: list[TopicPartition]
    deleted: list[TopicPartition]
    recreated: list[TopicPartition]
    """Partitions whose topics have other ids."""
    truncated: list[TopicPartition]
    """Partitions that end before what was read: truncated, or, without an id, possibly recreated."""
    from_earliest: list[TopicPartition]
    """Partitions to read from the earliest offset: new ones, and those that are or may be recreated."""


def stream_changes(starts: StreamOffsets, ends: StreamOffsets) -> Changes:
    """The changes between two sets of offsets."""
    new = [partition for partition in ends.offsets if partition not in starts.offsets]
    both = [partition for partition in ends.offsets if partition in starts.offsets]
    ids = {
        partition: (starts.topic_ids.get(partition.topic), ends.topic_ids.get(partition.topic))
        for partition in both
    }
    recreated = [
        partition for partition in both if None not in ids[partition] and len({*ids[partition]}) == 2
    ]
    others = set(recreated)
    truncated = [
        partition
        for partition in both
        if partition not in others and ends.offsets[partition] < starts.offsets[partition]
    ]
    # A log that is known to be the same is resumed at its new end.
    unknown = [partition for partition in truncated if None in ids[partition]]
    return Changes(
        new,
        [partition for partition in starts.offsets if partition not in ends.offsets],
        recreated,
        truncated,
        [*new, *recreated, *unknown],
    )
