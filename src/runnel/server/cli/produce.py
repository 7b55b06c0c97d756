"""`runnel produce`: send records from arguments, lines or JSON."""

from collections.abc import AsyncIterable, AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.server.cli.options import BOOTSTRAP_DEFAULT, Bootstrap

if TYPE_CHECKING:
    import asyncio

    from runnel.client.accumulator import Delivery
    from runnel.client.cluster import Cluster
    from runnel.client.producer import Producer
    from runnel.server.cli.records import Outgoing


LINGER_MS = 5


class Compression(StrEnum):
    """How records are packed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Whom to wait for."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.", show_default=False)]
Values = Annotated[
    list[str] | None,
    typer.Argument(metavar="VALUE...", help="Values; without any, each line of standard input is one."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="Each line is a key, this, and a value.")
]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of all records. May be repeated."),
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only there.")]
CompressionOption = Annotated[Compression, typer.Option("--compression", "-z", help="How to pack.")]
AcksOption = Annotated[Acks, typer.Option(help="Wait for all replicas, the leader, or nobody.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Each line is a JSON object, as `runnel consume --json` prints.")
]
TransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        help="Send all in one transaction of this id: committed at the end, aborted if anything goes wrong.",
    ),
]
Show = Annotated[bool, typer.Option("--show-offsets", help="Print where each record went.")]


def produce(
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
    show: Show = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Send records to a topic.

    Example: runnel produce orders "a cup of tea" --key anna --header source=shop

    Example: seq 1000 | runnel produce numbers --compression zstd

    Example: runnel consume orders --json | runnel produce copy --json

    Example: runnel produce orders --transactional-id nightly-import < orders.txt
    """
    from runnel.server.cli.output import note
    from runnel.server.cli.records import from_json, from_line, parse_headers
    from runnel.server.cli.session import with_cluster

    if transactional_id is not None and acks is not Acks.ALL:
        raise typer.BadParameter("a transaction needs --acks all")
    separator = None if key_separator is None else key_separator.encode()
    common_headers = parse_headers(headers)

    async def outgoing() -> "AsyncIterator[Outgoing]":
        from runnel.server.cli.lines import lines_of_input

        async for line in _listed(values) if values else lines_of_input():
            record = from_json(line) if as_json else from_line(line, separator)
            record.key = key.encode() if key is not None else record.key
            record.headers += common_headers
            record.partition = partition if partition is not None else record.partition
            yield record

    async def work(cluster: "Cluster") -> int:
        if transactional_id is not None:
            return await _transact(cluster, transactional_id, compression.value, topic, outgoing(), show)
        return await _deliver(cluster, acks.value, compression.value, topic, outgoing(), show)

    count = with_cluster(bootstrap, work)
    note(f"sent {count} record{'s' * (count != 1)} to {topic}")


async def _deliver(
    cluster: "Cluster",
    acks: str,
    compression: str,
    topic: str,
    records: "AsyncIterable[Outgoing]",
    show: bool,
) -> int:
    from runnel.client.producer import Producer

    async with Producer(cluster, acks=acks, compression=compression, linger_ms=LINGER_MS) as producer:
        return await _send(producer, topic, records, show)


async def _transact(
    cluster: "Cluster",
    transactional_id: str,
    compression: str,
    topic: str,
    records: "AsyncIterable[Outgoing]",
    show: bool,
) -> int:
    from runnel.client.transactional import TransactionalProducer

    async with (
        TransactionalProducer(
            cluster, transactional_id, compression=compression, linger_ms=LINGER_MS
        ) as producer,
        producer.transaction(),
    ):
        return await _send(producer, topic, records, show)


class _Deliveries:
    """What became of the records that were sent."""

    def __init__(self, show: bool) -> None:
        self._show = show
        self.count = 0
        self.failure: BaseException | None = None

    def settled(self, future: "asyncio.Future[Delivery]") -> None:
        """A record was delivered, or will not be."""
        failure = future.exception()
        if failure is not None:
            self.failure = self.failure or failure
            return
        self.count += 1
        if self._show:
            delivery = future.result()
            print(
                f"{delivery.partition.topic}\t{delivery.partition.partition}\t{delivery.offset}", flush=True
            )


async def _send(producer: "Producer", topic: str, records: "AsyncIterable[Outgoing]", show: bool) -> int:
    deliveries = _Deliveries(show)
    async for record in records:
        future = await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        future.add_done_callback(deliveries.settled)
        if deliveries.failure is not None:
            break
    await producer.flush()
    if deliveries.failure is not None:
        raise deliveries.failure
    return deliveries.count


async def _listed(values: list[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield value.encode("utf-8", "surrogateescape")
