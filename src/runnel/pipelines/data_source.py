"""The Spark data source "runnel": reads and writes topics.

Spark starts a process for each call to a source or sink, so each method imports only what it needs.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class RunnelDataSource(DataSource):
    """Topics of a broker that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "runnel"

    def schema(self) -> StructType:
        from runnel.pipelines.source.columns import table_schema
        from runnel.pipelines.source.options import read_options

        return table_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from runnel.pipelines.source.batch_reader import BatchReader
        from runnel.pipelines.source.options import read_options

        return BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from runnel.pipelines.source.options import read_options
        from runnel.pipelines.source.stream_reader import StreamReader

        return StreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from runnel.pipelines.errors import BadOption
        from runnel.pipelines.sink.options import write_options
        from runnel.pipelines.sink.writers import BatchWriter

        if overwrite:
            raise BadOption("a topic cannot be overwritten, only appended to: use mode('append')")
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from runnel.pipelines.sink.options import write_options
        from runnel.pipelines.sink.writers import StreamWriter

        return StreamWriter(write_options(self.options), schema)
