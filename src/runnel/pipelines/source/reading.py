"""Reads a range of a partition in a task, as Arrow batches."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from runnel.batch.errors import CorruptBatch
from runnel.pipelines.errors import DamagedRecords
from runnel.pipelines.source.columns import RowBuilder
from runnel.pipelines.source.decode import read_spans
from runnel.pipelines.source.fetching import FetchSettings, RangeFetcher
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.planning import Range


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, range_: Range) -> None:
        super().__init__(range_)
        self.range = range_


def read_range(options: SourceOptions, schema: StructType, whole: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches, usually one per fetch."""
    settings = FetchSettings(
        options.bootstrap_servers,
        options.client_id,
        options.isolation,
        options.fetch_timeout_ms / 1000,
        options.fetch_bytes,
        options.fail_on_data_loss,
        options.properties,
    )
    rows = RowBuilder(options, schema)
    fetcher = RangeFetcher(settings, whole.partition, whole.start, whole.end, whole.topic_id)
    for chunk in fetcher.chunks():
        try:
            for spans in read_spans(chunk.batches, chunk.from_offset, chunk.to_offset):
                yield rows.batch(whole.partition, spans)
        except CorruptBatch as error:
            raise DamagedRecords(f"{whole.partition}: {error}") from error
