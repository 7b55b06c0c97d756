"""`runnel produce`: send records from arguments, lines or JSON."""

import sys
from collections.abc import Iterable, Iterator
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

UNACKNOWLEDGED_MAX = 10_000
"""Deliveries waited for at a time: errors come up soon, and memory stays small for an endless input."""


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


def produce(
    topic: Annotated[str, typer.Argument(help="Where to.", show_default=False)],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Values; without any, each line of standard input is one."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Each line is a key, this, and a value.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of all records. May be repeated."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only there.")] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How to pack.")
    ] = Compression.NONE,
    acks: Annotated[Acks, typer.Option(help="Wait for all replicas, the leader, or nobody.")] = Acks.ALL,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is a JSON object, as `runnel consume --json` prints.")
    ] = False,
    show: Annotated[bool, typer.Option("--show-offsets", help="Print where each record went.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Send records to a topic.

    Example: runnel produce orders "a cup of tea" --key anna --header source=shop

    Example: seq 1000 | runnel produce numbers --compression zstd

    Example: runnel consume orders --json | runnel produce copy --json
    """
    from runnel.server.cli.output import note
    from runnel.server.cli.records import from_json, from_line, parse_headers
    from runnel.server.cli.session import with_cluster

    separator = None if key_separator is None else key_separator.encode()
    common_headers = parse_headers(headers)

    def outgoing() -> "Iterator[Outgoing]":
        for line in _lines(values):
            record = from_json(line) if as_json else from_line(line, separator)
            record.key = key.encode() if key is not None else record.key
            record.headers += common_headers
            record.partition = partition if partition is not None else record.partition
            yield record

    async def work(cluster: "Cluster") -> int:
        from runnel.client.producer import Producer

        async with Producer(cluster, acks=acks.value, compression=compression.value, linger_ms=5) as producer:
            return await _send(producer, topic, outgoing(), show)

    count = with_cluster(bootstrap, work)
    note(f"sent {count} record{'s' * (count != 1)} to {topic}")


async def _send(producer: "Producer", topic: str, records: "Iterable[Outgoing]", show: bool) -> int:
    count = 0
    waiting: list[asyncio.Future[Delivery]] = []
    try:
        for record in records:
            waiting.append(
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            )
            count += 1
            if len(waiting) >= UNACKNOWLEDGED_MAX:
                await _settle(waiting, show)
        await producer.flush()
    finally:
        await _settle(waiting, show)
    return count


async def _settle(waiting: "list[asyncio.Future[Delivery]]", show: bool) -> None:
    """Wait for all, print where they went, and raise the first failure."""
    import asyncio

    results = await asyncio.gather(*waiting, return_exceptions=True)
    waiting.clear()
    for result in results:
        if isinstance(result, BaseException):
            raise result
        if show:
            print(f"{result.partition.topic}\t{result.partition.partition}\t{result.offset}")


def _lines(values: list[str] | None) -> Iterator[bytes]:
    if values:
        yield from (value.encode("utf-8", "surrogateescape") for value in values)
        return
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")
