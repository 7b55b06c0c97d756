"""The batch reader."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from runnel.pipelines.source.columns import RowBuilder, with_schema
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.planning import split_ranges
from runnel.pipelines.source.reading import RangePartition, read_range
from runnel.pipelines.source.resolving import batch_ranges, connected


class BatchReader(DataSourceReader):
    """Reads the offsets available when the query is planned, and commits no offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options = with_schema(options, schema)
        # A schema that no task can fill is reported here, not by every task.
        RowBuilder(options, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with connected(options) as broker:
            ranges = batch_ranges(broker, options)
        pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark passes an empty partition if there is nothing to read.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(self._options, self._schema, partition.range)
