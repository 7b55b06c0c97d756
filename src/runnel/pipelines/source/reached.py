"""How far a stream has come, as Spark keeps it in a checkpoint.

    {"orders": {"0": 5, "1": 7}, "orders id 3JxXhc7rTfWq0gL1mJ0m5w": {}}

Offsets are in the form of Spark's Kafka connector. The id of each topic is beside them, in a name that
no topic can have and that has no partitions: readers of offsets find none there, an older version of
this source included. Checkpoints of such versions have no ids, and neither have topics of very old brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runnel.model.ids import NO_ID, TopicPartition, id_from_text, id_text
from runnel.pipelines.source.planning import from_json, to_json

Table = dict[str, dict[str, int]]

_ID_FOLLOWS = " id "


@dataclass(slots=True)
class Reached:
    """Offsets, and the ids of the topics in whose logs they count."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    """Those that are known."""

    @classmethod
    def of(cls, offsets: dict[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> "Reached":
        """With the ids of these topics only, as far as they have one."""
        names = {partition.topic for partition in offsets}
        known = {name: topic_id for name, topic_id in topic_ids.items() if name in names}
        return cls(offsets, {name: topic_id for name, topic_id in known.items() if topic_id != NO_ID})

    @classmethod
    def from_json(cls, table: Mapping[str, Mapping[str, int]]) -> "Reached":
        """What `to_json` made, now or in an older version."""
        names = (name.partition(_ID_FOLLOWS) for name in table)
        return cls(from_json(table), {topic: id_from_text(text) for topic, mark, text in names if mark})

    def to_json(self) -> Table:
        """Always in the same order: Spark takes any other text for another place."""
        table = to_json(self.offsets)
        for topic, topic_id in sorted(self.topic_ids.items()):
            table[f"{topic}{_ID_FOLLOWS}{id_text(topic_id)}"] = {}
        return table


@dataclass(slots=True)
class Changes:
    """How the partitions of a stream differ from those it knew."""

    new: list[TopicPartition]
    deleted: list[TopicPartition]
    recreated: list[TopicPartition]
    """Their topics have other ids: they are other logs than before, whatever offsets they have."""
    truncated: list[TopicPartition]
    """Their logs end before what was read: they lost their tail, or, without an id, may be other logs."""
    from_earliest: list[TopicPartition]
    """Those that are read from their beginning: new ones, and those that were or may have been recreated."""


def stream_changes(starts: Reached, ends: Reached) -> Changes:
    """What became of the partitions between two moments."""
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
    # A log that is known to be the same resumes at its new end: all before was read.
    unknown = [partition for partition in truncated if None in ids[partition]]
    return Changes(
        new,
        [partition for partition in starts.offsets if partition not in ends.offsets],
        recreated,
        truncated,
        [*new, *recreated, *unknown],
    )
