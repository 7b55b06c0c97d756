"""Reads topics through the data source without Spark."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.pipelines.data_source import RunnelDataSource
from runnel.pipelines.source.stream_reader import StreamReader
from runnel.testing import Broker


def source(broker: Broker, **options: object) -> RunnelDataSource:
    """The data source with options; names of options with a dot are written with two underscores."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    return RunnelDataSource({"kafka.bootstrap.servers": broker.bootstrap_servers, **given})


def stream(broker: Broker, **options: object) -> StreamReader:
    table = source(broker, **options)
    reader = table.streamReader(table.schema())
    assert isinstance(reader, StreamReader)
    return reader


def rows(broker: Broker, **options: object) -> list[dict[str, Any]]:
    """All rows of a batch query, by partition and offset."""
    table = source(broker, **options)
    reader = table.reader(table.schema())
    return read_all(reader, reader.partitions())


def offsets(broker: Broker, **options: object) -> list[int]:
    return [row["offset"] for row in rows(broker, **options)]


def without_ids(table: dict[str, dict[str, int]] | None) -> dict[str, dict[str, int]]:
    """The offsets of a stream as Spark keeps them, without the ids beside them."""
    assert table is not None
    return {topic: numbers for topic, numbers in table.items() if " id " not in topic}


def read_all(reader: DataSourceReader | DataSourceStreamReader, partitions: Iterable[Any]) -> list[dict]:
    found: list[dict] = []
    for partition in partitions:
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            batch.validate(full=True)
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def send_in_transaction(
    broker: Broker, topic: str, values: Iterable[bytes], *, commit: bool, name: str
) -> None:
    """Some records to partition 0, then the end of their transaction."""

    async def send(cluster: Cluster) -> None:
        async with TransactionalProducer(cluster, name) as producer:
            await producer.begin()
            for value in values:
                await (await producer.send(topic, value, partition=0))
            await (producer.commit() if commit else producer.abort())

    with broker.client() as client:
        client.run(send)
