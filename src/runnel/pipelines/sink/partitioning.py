"""The partition of each row: its partition column, the hash of its key, or sticky partitioning."""

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
class StickyPartitioner:
    """Sticky partitioning of rows without a key, per topic.

    Such rows fill one batch, then one in the next partition: few, large batches. Tasks start at different
    partitions.
    """

    batch_bytes: int
    first: int
    taken_bytes: dict[str, int]

    def take(self, topic: str, sizes: Numbers, partition_count: int) -> Numbers:
        """The partition of each row of these sizes."""
        ends = self.taken_bytes.get(topic, 0) + np.cumsum(sizes)
        self.taken_bytes[topic] = int(ends[-1])
        partitioner: Numbers = (self.first + (ends - sizes) // self.batch_bytes) % partition_count
        return partitioner


@dataclass(slots=True)
class Group:
    """Consecutive rows of one partition, after sorting."""

    partition: TopicPartition
    start: int
    end: int


def topics_of(rows: Rows, fixed: str | None) -> tuple[list[str], Numbers]:
    """The topics of the rows, and the index of each row's topic. A fixed topic overrides the column."""
    if fixed is not None:
        return [fixed], np.zeros(len(rows), np.int64)
    if rows.topic.null_count:
        raise PipelineError("column `topic` is null in some rows; set the option topic, or fill the column")
    encoded = rows.topic.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def choose_partitions(
    rows: Rows,
    topics: list[str],
    topic_of: Numbers,
    counts: Mapping[str, int],
    partitioner: StickyPartitioner,
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
                f"column `partition` contains {int(named[wrong][0])}, but topic {topic!r} has {count} "
                f"partition{'s' * (count != 1)}, numbered from 0"
            )
        without_key = np.flatnonzero(here & has_no_key & (named < 0))
        by_key = np.flatnonzero(here & ~has_no_key & (named < 0))
        if len(by_key) and data is not None and starts is not None and lengths is not None:
            chosen[by_key] = partitions_of(data, starts[by_key], lengths[by_key], count)
        if len(without_key):
            chosen[without_key] = partitioner.take(topic, rows.sizes[without_key], count)
    return np.where(named >= 0, named, chosen)


def grouped(topics: list[str], topic_of: Numbers, partitions: Numbers) -> tuple[Numbers, list[Group]]:
    """A stable sort order by partition, and the groups of rows it produces."""
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
        raise PipelineError(
            f"column `partition` contains {int(numbers.min())}; partitions are numbered from 0"
        )
    return numbers
