"""A Spark data source with one row per record batch of a log; each task reads one split."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from runnel.client.properties import ClientProperties
from runnel.pipelines.audit.batch_summary import COLUMNS, BatchSummary
from runnel.pipelines.audit.broker_batches import read_broker_split
from runnel.pipelines.audit.folder import read_file_split
from runnel.pipelines.audit.splits import FileSplit, OffsetSplit
from runnel.pipelines.client_options import read_client_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 8192
ARROW_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *(
            (name, pa.int64())
            for name in ("range_start", "position", "base_offset", "last_offset", "size_bytes")
        ),
        *((name, pa.int32()) for name in ("record_count", "attributes")),
        *((name, pa.int64()) for name in ("base_timestamp", "max_timestamp", "producer_id")),
        *((name, pa.int32()) for name in ("producer_epoch", "base_sequence")),
        *((name, pa.string()) for name in ("marker", "problem")),
    ]
)

Split = OffsetSplit | FileSplit


def batch_summaries(
    session: "SparkSession", connection: Mapping[str, str], splits: Sequence[tuple[Split, int]]
) -> "DataFrame":
    """A DataFrame with one row per batch; each split comes with the log start offset."""
    session.dataSource.register(RawBatches)
    rows = [[type(split).__name__, asdict(split), start] for split, start in splits]
    return session.read.format(RawBatches.name()).options(**connection, splits=json.dumps(rows)).load()


class RawBatches(DataSource):
    """The stored batches of partitions, including damaged ones."""

    @classmethod
    def name(cls) -> str:
        return "runnel-batches"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        properties = read_client_properties(self.options)
        return RawBatchesReader(self.options["kafka.bootstrap.servers"], properties, self.options["splits"])


class SplitPartition(InputPartition):
    """The input partition of one split."""

    def __init__(self, split: Split, start_offset: int) -> None:
        super().__init__((split, start_offset))
        self.split = split
        self.start_offset = start_offset


class RawBatchesReader(DataSourceReader):
    """Reads splits."""

    def __init__(self, bootstrap: str, properties: ClientProperties, splits: str) -> None:
        self._bootstrap = bootstrap
        self._properties = properties
        self._splits = splits

    def partitions(self) -> Sequence[InputPartition]:
        kinds = {kind.__name__: kind for kind in (OffsetSplit, FileSplit)}
        return [
            SplitPartition(kinds[kind](**fields), start) for kind, fields, start in json.loads(self._splits)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark creates a partition without a value if there is nothing to read.
        if not isinstance(partition, SplitPartition):
            return iter(())
        split = partition.split
        if isinstance(split, FileSplit):
            return arrow_batches(read_file_split(split, partition.start_offset))
        return arrow_batches(read_broker_split(self._bootstrap, split, self._properties))


def arrow_batches(summaries: Iterable[BatchSummary]) -> Iterator[pa.RecordBatch]:
    """Convert summaries to Arrow batches."""
    rest = iter(summaries)
    while rows := [summary.row() for summary in islice(rest, _ROWS)]:
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), ARROW_COLUMNS, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW_COLUMNS)


def summaries_of_arrow(batch: pa.RecordBatch) -> Iterator[BatchSummary]:
    """Convert an Arrow batch to summaries."""
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield BatchSummary(*row)
