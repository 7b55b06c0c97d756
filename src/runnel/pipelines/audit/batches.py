"""Every batch of a log as a row, for Spark: each task reads one piece."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from runnel.pipelines.audit.broker_batches import read_broker_piece
from runnel.pipelines.audit.facts import COLUMNS, BatchFact
from runnel.pipelines.audit.folder import read_file_piece
from runnel.pipelines.audit.pieces import BrokerPiece, FilePiece

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

Piece = BrokerPiece | FilePiece


def batch_facts(session: "SparkSession", bootstrap: str, pieces: Sequence[tuple[Piece, int]]) -> "DataFrame":
    """A row for each batch; with the log start offset beside each piece."""
    session.dataSource.register(RawBatches)
    rows = [[type(piece).__name__, asdict(piece), start] for piece, start in pieces]
    return session.read.format(RawBatches.name()).options(bootstrap=bootstrap, pieces=json.dumps(rows)).load()


class RawBatches(DataSource):
    """The batches of partitions as they are kept, damaged ones included."""

    @classmethod
    def name(cls) -> str:
        return "runnel-batches"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return RawBatchesReader(self.options["bootstrap"], self.options["pieces"])


class PiecePartition(InputPartition):
    """One piece, which one task reads."""

    def __init__(self, piece: Piece, start_offset: int) -> None:
        super().__init__((piece, start_offset))
        self.piece = piece
        self.start_offset = start_offset


class RawBatchesReader(DataSourceReader):
    """Reads pieces."""

    def __init__(self, bootstrap: str, pieces: str) -> None:
        self._bootstrap = bootstrap
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        kinds = {kind.__name__: kind for kind in (BrokerPiece, FilePiece)}
        return [
            PiecePartition(kinds[kind](**fields), start) for kind, fields, start in json.loads(self._pieces)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes up a partition without a value where there is nothing to read.
        if not isinstance(partition, PiecePartition):
            return iter(())
        piece = partition.piece
        if isinstance(piece, FilePiece):
            return arrow_batches(read_file_piece(piece, partition.start_offset))
        return arrow_batches(read_broker_piece(self._bootstrap, piece))


def arrow_batches(facts: Iterable[BatchFact]) -> Iterator[pa.RecordBatch]:
    """Facts as Arrow, a few thousand at a time."""
    rest = iter(facts)
    while rows := [fact.row() for fact in islice(rest, _ROWS)]:
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), ARROW_COLUMNS, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW_COLUMNS)


def facts_of_arrow(batch: pa.RecordBatch) -> Iterator[BatchFact]:
    """The way back."""
    columns = [column.to_pylist() for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield BatchFact(*row)
