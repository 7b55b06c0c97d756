"""The streaming reader.

Spark stores the offsets of each batch in its checkpoint, and requests the same ranges again after a failure.
This reader determines only the end offsets of the next batch. Progress is committed to a consumer group for
tools that monitor lag, and is never read back.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from runnel.client.offsets import LATEST
from runnel.model.ids import NO_ID, TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, DataLost, PipelineError
from runnel.pipelines.source.admission import available, mean_bytes
from runnel.pipelines.source.columns import RowBuilder, with_schema
from runnel.pipelines.source.options import Bound, SourceOptions
from runnel.pipelines.source.planning import Range, partition_names, split_ranges
from runnel.pipelines.source.reading import RangePartition, read_range
from runnel.pipelines.source.resolving import Topics, connected, starting_offsets, subscribed
from runnel.pipelines.source.stream_offsets import Changes, StreamOffsets, Table, stream_changes

Offsets = dict[TopicPartition, int]

END_OFFSET_RETRIES = 5
END_OFFSET_RETRY_S = 0.2
"""A newly elected leader may report an end offset below what was already read."""
SIZES_S = 60.0
"""Age up to which the mean sizes of records are used."""
SIZES_TIMEOUT_S = 10.0
COMMIT_TIMEOUT_S = 5.0
REPORT_RETRY_S = 30.0
"""A failed commit of the progress is retried after this time, so that batches are not delayed by it."""

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new records in micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options = with_schema(options, schema)
        # A schema that no task can fill is reported here, not by every task.
        RowBuilder(options, schema)
        if options.ending is not None:
            raise BadOption("options that begin with ending do not apply to streams")
        self._options = options
        self._schema = schema
        self._broker: BrokerView | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._target: StreamOffsets | None = None
        self._seen: StreamOffsets | None = None
        self._reported: Offsets = {}
        self._unreported: Offsets = {}
        self._retry_report_s = 0.0
        self._admitted_s: float | None = None
        self._sizes: dict[TopicPartition, float] = {}
        self._sized_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy without the connection.
        return {**self.__dict__, "_broker": None}

    # The offsets of batches.

    def initialOffset(self) -> Table:
        broker = self._connected()
        topics = self._topics(broker)
        bound = self._options.starting or Bound(moment=LATEST)
        first = broker.earliest_offsets(topics)
        last = broker.latest_offsets(topics, isolation=self._options.isolation)
        starts = starting_offsets(broker, self._options, bound, first, last)
        return StreamOffsets.of(starts, self._topic_ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.admission.offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest(StreamOffsets({}))

    def latestOffset(self, start: Table, limit: ReadLimit) -> Table:
        starts = StreamOffsets.from_json(start)
        # Spark calls this after the batch that ended here, and `commit` only with the next one.
        self._report_progress(starts.offsets)
        ends = self._latest(starts) if self._target is None else self._up_to_target(starts, self._target)
        # Only Trigger.Once passes no limit.
        if isinstance(limit, ReadMaxRows):
            begins = self._begins(starts, stream_changes(starts, ends))
            if self._target is None and self._is_delayed(begins, ends.offsets):
                return start
            admitted = self._options.admission.ends(
                begins, ends.offsets, limit.max_rows, self._offset_bytes(begins, ends.offsets)
            )
            ends = StreamOffsets(admitted, ends.topic_ids)
        if ends.to_json() != start:
            self._admitted_s = time.monotonic()
        return ends.to_json()

    def _is_delayed(self, begins: Offsets, ends: Offsets) -> bool:
        idle_ms = None if self._admitted_s is None else (time.monotonic() - self._admitted_s) * 1000
        return self._options.admission.is_delayed(begins, ends, idle_ms)

    def _offset_bytes(self, begins: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """The mean bytes per offset of each partition, cached; empty if unavailable."""
        is_fresh = time.monotonic() < self._sized_s + SIZES_S and self._sizes.keys() >= ends.keys()
        if is_fresh or not available(begins, ends):
            return self._sizes
        broker = self._connected()
        try:
            sizes = broker.log_sizes(ends, timeout_s=SIZES_TIMEOUT_S)
        except PipelineError as error:
            logger.warning("maxBytesPerTrigger has no effect: the sizes of logs are not known: %s", error)
            return self._sizes
        self._sizes = dict.fromkeys(ends, 0.0) | mean_bytes(sizes, broker.earliest_offsets(ends), ends)
        self._sized_s = time.monotonic()
        return self._sizes

    def reportLatestOffset(self) -> Table | None:
        return None if self._seen is None else self._seen.to_json()

    def _up_to_target(self, starts: StreamOffsets, target: StreamOffsets) -> StreamOffsets:
        """The target, adjusted if a log was truncated since it was taken."""
        changes = stream_changes(starts, target)
        if changes.truncated or changes.deleted or changes.recreated:
            now = self._latest(starts).offsets
            for partition in changes.truncated:
                behind = now.get(partition, target.offsets[partition])
                target.offsets[partition] = min(starts.offsets[partition], behind)
        return target

    def _latest(self, starts: StreamOffsets) -> StreamOffsets:
        """The current end offsets; DataLost if records that were read are missing."""
        broker = self._connected()
        topics = self._topics(broker)
        for _ in range(END_OFFSET_RETRIES):
            offsets = broker.latest_offsets(topics, isolation=self._options.isolation)
            ends = StreamOffsets.of(offsets, self._topic_ids)
            changes = stream_changes(starts, ends)
            if not changes.truncated:
                break
            time.sleep(END_OFFSET_RETRY_S)
        self._check(changes)
        self._seen = ends
        return ends

    def _check(self, changes: Changes) -> None:
        if changes.deleted:
            self._data_lost(f"{partition_names(changes.deleted)} of this stream no longer exist")
        if changes.recreated:
            names = sorted({partition.topic for partition in changes.recreated})
            self._data_lost(f"topic {', '.join(names)} was deleted and recreated")
        if changes.truncated:
            self._data_lost(
                f"{partition_names(changes.truncated)} end before the offset that this stream has reached: "
                "the log was truncated, or the topic was deleted and recreated"
            )

    def _begins(self, starts: StreamOffsets, changes: Changes) -> Offsets:
        """The starting offset of each partition."""
        return starts.offsets | self._connected().earliest_offsets(changes.from_earliest)

    # Tasks.

    def partitions(self, start: Table, end: Table) -> list[InputPartition]:
        starts, ends = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        changes = stream_changes(starts, ends)
        # The batch may have been planned with other values of the options.
        self._check(changes)
        begins = self._begins(starts, changes)
        missed = [partition for partition in changes.new if begins[partition] > 0]
        if missed:
            self._data_lost(
                f"the first records of the new partitions {partition_names(missed)} are already deleted"
            )
        topic_ids = self._topic_ids | ends.topic_ids
        ranges = [
            Range(partition, begins[partition], offset, topic_ids.get(partition.topic, NO_ID))
            for partition, offset in ends.offsets.items()
        ]
        options = self._options
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._schema, partition.range)

    # Committing the progress.

    def commit(self, end: Table) -> None:
        self._report_progress(StreamOffsets.from_json(end).offsets)

    def _report_progress(self, offsets: Offsets) -> None:
        is_too_soon = offsets == self._unreported and time.monotonic() < self._retry_report_s
        if offsets == self._reported or is_too_soon:
            return
        group_id = self._options.group_id
        try:
            self._connected().commit_group_offsets(group_id, offsets, timeout_s=COMMIT_TIMEOUT_S)
            self._reported = offsets
        except PipelineError as error:
            # The checkpoint is authoritative: a query does not fail because its lag cannot be observed.
            logger.warning("the progress could not be committed as group %s: %s", group_id, error)
            self._unreported, self._retry_report_s = offsets, time.monotonic() + REPORT_RETRY_S

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def _connected(self) -> BrokerView:
        if self._broker is None:
            self._broker = connected(self._options)
        return self._broker

    def _topics(self, broker: BrokerView) -> Topics:
        """The current partitions."""
        topics = subscribed(broker, self._options.subscription, self._topic_ids)
        self._topic_ids |= {partition.topic: topic_id for partition, topic_id in topics.items()}
        return topics

    def _data_lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}. To skip the missing records, set the option failOnDataLoss to false.")
        logger.warning("%s; missing records are skipped", what)
