"""What runs in a task: a range of a partition in, Arrow batches out."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from runnel.batch.errors import CorruptBatch
from runnel.pipelines.errors import BadOption, DamagedRecords
from runnel.pipelines.source.columns import COLUMNS, TYPES
from runnel.pipelines.source.decode import read_spans
from runnel.pipelines.source.fetching import FetchSettings, RangeFetcher
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.planning import Range


class RangePartition(InputPartition):
    """A range for one task to read."""

    def __init__(self, range_: Range) -> None:
        super().__init__(range_)
        self.range = range_


def read_range(options: SourceOptions, schema: StructType, whole: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches, one per fetch."""
    settings = FetchSettings(
        options.bootstrap_servers,
        options.client_id,
        options.isolation,
        options.fetch_timeout_ms / 1000,
        options.fetch_bytes,
        options.fail_on_data_loss,
    )
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    fetcher = RangeFetcher(settings, whole.partition, whole.start, whole.end, whole.topic_id)
    for chunk in fetcher.chunks():
        if not chunk.batches:
            continue
        try:
            spans = read_spans(chunk.batches, chunk.from_offset, chunk.to_offset)
            columns = [COLUMNS[name](whole.partition, spans) for name in schema.fieldNames()]
        except CorruptBatch as error:
            raise DamagedRecords(f"{whole.partition}: {error}") from error
        if len(spans):
            yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def full_schema(options: SourceOptions) -> StructType:
    """All columns that these options give."""
    schema = StructType()
    for name, kind in TYPES.items():
        if name != "headers" or options.include_headers:
            schema.add(name, kind)
    return schema


def check_schema(chosen: StructType, full: StructType) -> None:
    """BadOption unless the columns chosen are among those there are: naming fewer saves work."""
    types = {column.name: column.dataType for column in full}
    for column in chosen:
        if types.get(column.name) != column.dataType:
            raise BadOption(
                f"there is no column {column.name} {column.dataType.simpleString()}; "
                f"the columns are {full.simpleString()}"
            )
