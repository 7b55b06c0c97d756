"""`runnel produce`: produce records from arguments, lines or JSON."""

from collections.abc import AsyncIterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap
from runnel.server.cli.schema_options import PRODUCING, FormatOptions, with_schema_options

if TYPE_CHECKING:
    import asyncio

    from runnel.client.accumulator import Delivery
    from runnel.client.cluster import Cluster
    from runnel.client.producer import Producer
    from runnel.server.cli.records import ProducerRecord


LINGER_MS = 5


class Compression(StrEnum):
    """Compression types."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Required acknowledgements."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to produce to.", show_default=False)]
Values = Annotated[
    list[str] | None,
    typer.Argument(metavar="VALUE...", help="Record values. Default: one per line of standard input."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of all records.")]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="Separator between key and value in a line.")
]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of all records. Repeatable."),
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Partition to produce to.")]
CompressionOption = Annotated[Compression, typer.Option("--compression", "-z", help="Compression type.")]
AcksOption = Annotated[
    Acks, typer.Option(help="Required acknowledgements: all in-sync replicas, the leader, or none.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Each line is a JSON object as printed by `runnel consume --json`.")
]
TransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="Produce all records in one transaction: committed at the end, aborted on any error.",
    ),
]
ShowOffsets = Annotated[
    bool, typer.Option("--show-offsets", help="Print topic, partition and offset of each record.")
]


@with_schema_options(PRODUCING)
def produce(
    formats: FormatOptions,
    topic: Topic,
    values: Values = None,
    key: Key = None,
    key_separator: KeySeparator = None,
    headers: HeadersOption = None,
    partition: Partition = None,
    compression: CompressionOption = Compression.NONE,
    acks: AcksOption = Acks.ALL,
    transactional_id: TransactionalId = None,
    as_json: AsJson = False,
    show_offsets: ShowOffsets = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Produce records to a topic.

    Example: runnel produce orders "a cup of tea" --key anna --header source=shop

    Example: seq 1000 | runnel produce numbers --compression zstd

    Example: runnel consume orders --json | runnel produce copy --json

    Example: runnel produce orders --transactional-id nightly-import < orders.txt

    Example: runnel produce orders '{"id": 1}' --value-format avro --value-schema order.avsc
    """
    from runnel.server.cli.output import print_info
    from runnel.server.cli.record_source import RecordSource
    from runnel.server.cli.records import parse_headers
    from runnel.server.cli.session import with_cluster

    if transactional_id is not None and acks is not Acks.ALL:
        raise typer.BadParameter("--transactional-id requires --acks all")
    formats.check_producing(as_json=as_json)
    codec, separator = compression.value, None if key_separator is None else key_separator.encode()
    source = RecordSource(values, as_json, separator, key, parse_headers(headers), partition, formats)

    async def work(cluster: "Cluster") -> int:
        await source.prepare(topic)
        if transactional_id is not None:
            return await _transact(cluster, transactional_id, codec, topic, source.records(), show_offsets)
        return await _deliver(cluster, acks.value, codec, topic, source.records(), show_offsets)

    count = with_cluster(bootstrap, work)
    print_info(f"produced {count} record{'s' * (count != 1)} to {topic}")


async def _deliver(
    cluster: "Cluster",
    acks: str,
    compression: str,
    topic: str,
    records: "AsyncIterable[ProducerRecord]",
    show_offsets: bool,
) -> int:
    from runnel.client.producer import Producer
    from runnel.server.cli.output import CommandError

    deliveries = _Deliveries(show_offsets)
    async with Producer(cluster, acks=acks, compression=compression, linger_ms=LINGER_MS) as producer:
        try:
            return await _send(producer, topic, records, deliveries)
        except CommandError as invalid:
            await producer.flush()
            raise CommandError(f"{invalid}; records produced before it: {deliveries.count}") from None


async def _transact(
    cluster: "Cluster",
    transactional_id: str,
    compression: str,
    topic: str,
    records: "AsyncIterable[ProducerRecord]",
    show_offsets: bool,
) -> int:
    from runnel.client.transactional import TransactionalProducer

    async with (
        TransactionalProducer(
            cluster, transactional_id, compression=compression, linger_ms=LINGER_MS
        ) as producer,
        producer.transaction(),
    ):
        return await _send(producer, topic, records, _Deliveries(show_offsets))


class _Deliveries:
    """Delivery results of the records sent so far."""

    def __init__(self, show_offsets: bool) -> None:
        self._show_offsets = show_offsets
        self.count = 0
        self.failure: BaseException | None = None

    def completed(self, future: "asyncio.Future[Delivery]") -> None:
        """A record was acknowledged or failed."""
        failure = future.exception()
        if failure is not None:
            self.failure = self.failure or failure
            return
        self.count += 1
        if self._show_offsets:
            delivery = future.result()
            print(
                f"{delivery.partition.topic}\t{delivery.partition.partition}\t{delivery.offset}", flush=True
            )


async def _send(
    producer: "Producer", topic: str, records: "AsyncIterable[ProducerRecord]", deliveries: _Deliveries
) -> int:
    async for record in records:
        future = await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        future.add_done_callback(deliveries.completed)
        if deliveries.failure is not None:
            break
    await producer.flush()
    if deliveries.failure is not None:
        raise deliveries.failure
    return deliveries.count
