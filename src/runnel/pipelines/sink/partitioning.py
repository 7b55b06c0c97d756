"""Which partition each row goes to: the one it names, the one of its key, or the one whose turn it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.binary import Numbers, nulls, spans
from runnel.pipelines.sink.murmur import partitions_of
from runnel.pipelines.sink.rows import Rows


@dataclass(slots=True)
class Turns:
    """Whose turn it is among the partitions of each topic, for rows without a key.

    Such rows fill one batch, then one in the next partition: few, large batches. Tasks begin at different
    partitions.
    """

    batch_bytes: int
    first: int
    taken_bytes: dict[str, int]

    def take(self, topic: str, sizes: Numbers, partition_count: int) -> Numbers:
        """The partition of each row of these sizes."""
        ends = self.taken_bytes.get(topic, 0) + np.cumsum(sizes)
        self.taken_bytes[topic] = int(ends[-1])
        turns: Numbers = (self.first + (ends - sizes) // self.batch_bytes) % partition_count
        return turns


@dataclass(slots=True)
class Group:
    """Rows that go to one partition: a run of them, once all rows are put in order."""

    partition: TopicPartition
    start: int
    end: int


def topics_of(rows: Rows, fixed: str | None) -> tuple[list[str], Numbers]:
    """The topics that rows go to, and the number of each row's among them. A fixed topic beats the column."""
    if fixed is not None:
        return [fixed], np.zeros(len(rows), np.int64)
    if rows.topic.null_count:
        raise PipelineError("column `topic` is null in some row; give the option topic, or fill the column")
    encoded = rows.topic.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def choose_partitions(
    rows: Rows, topics: list[str], topic_of: Numbers, counts: Mapping[str, int], turns: Turns
) -> Numbers:
    """The partition of every row."""
    chosen = np.empty(len(rows), np.int64)
    data, starts, lengths = spans(rows.key) if rows.key is not None else (None, None, None)
    has_no_key = nulls(rows.key) if rows.key is not None else np.ones(len(rows), np.bool_)
    named = _named(rows.partition, len(rows))
    for number, topic in enumerate(topics):
        here = topic_of == number
        count = counts[topic]
        wrong = here & (named >= count)
        if wrong.any():
            raise PipelineError(
                f"column `partition` says {int(named[wrong][0])}, but topic {topic!r} has {count} "
                f"partition{'s' * (count != 1)}, numbered from 0"
            )
        by_turn = np.flatnonzero(here & has_no_key & (named < 0))
        by_key = np.flatnonzero(here & ~has_no_key & (named < 0))
        if len(by_key) and data is not None and starts is not None and lengths is not None:
            chosen[by_key] = partitions_of(data, starts[by_key], lengths[by_key], count)
        if len(by_turn):
            chosen[by_turn] = turns.take(topic, rows.sizes[by_turn], count)
    return np.where(named >= 0, named, chosen)


def grouped(topics: list[str], topic_of: Numbers, partitions: Numbers) -> tuple[Numbers, list[Group]]:
    """The order that puts rows of one partition side by side, each in its old order; and those groups."""
    stride = int(partitions.max()) + 1
    codes = topic_of * stride + partitions
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = np.append(starts[1:], len(codes))
    groups = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        topic, partition = divmod(int(codes[start]), stride)
        groups.append(Group(TopicPartition(topics[topic], partition), start, end))
    return order, groups


def _named(column: Any, length: int) -> Numbers:
    if column is None:
        return np.full(length, -1, np.int64)
    numbers: Numbers = pc.fill_null(column.cast("int64"), -1).to_numpy(zero_copy_only=False)
    if len(numbers) and int(numbers.min()) < -1:
        raise PipelineError(f"column `partition` says {int(numbers.min())}; partitions are numbered from 0")
    return numbers
