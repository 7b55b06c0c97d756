"""What `runnel consume` reads, from where to where, and how it prints it."""

import time
from dataclasses import dataclass
from typing import BinaryIO

import typer

from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.group_consumer import GroupConsumer
from runnel.client.offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    end_offsets,
    offsets_since,
    start_offsets,
)
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition
from runnel.server.cli.options import parse_moment_ms
from runnel.server.cli.output import time_text
from runnel.server.cli.records import headers_text, to_json
from runnel.server.cli.reset import check_partitions

POLL_S = 0.2
"""How long a member of a group waits for records before it looks whether it has reached the end."""


@dataclass(slots=True)
class Wanted:
    """What the person asked to read."""

    topics: list[str]
    start: str | None
    follow: bool
    count_max: int | None
    partitions: list[int] | None
    group: str | None
    committed_only: bool

    @property
    def isolation(self) -> int:
        return READ_COMMITTED if self.committed_only else READ_UNCOMMITTED


class LineWriter:
    """Prints one line per message."""

    def __init__(
        self, output: BinaryIO, as_json: bool, keys: bool, headers: bool, times: bool, offsets: bool
    ) -> None:
        self._output = output
        self._as_json = as_json
        self._keys = keys
        self._headers = headers
        self._times = times
        self._offsets = offsets

    def write(self, message: Message) -> None:
        """Print a message; it may wait in a buffer until `flush`."""
        self._output.write((to_json(message) if self._as_json else self._line(message)) + b"\n")

    def flush(self) -> None:
        """Let everything be seen."""
        self._output.flush()

    def _line(self, message: Message) -> bytes:
        fields: list[bytes] = []
        if self._offsets:
            fields.append(f"{message.topic}-{message.partition}\t{message.offset}".encode())
        if self._times:
            fields.append((time_text(message.timestamp_ms) or "-").encode())
        if self._keys:
            fields.append(b"-" if message.key is None else message.key)
        if self._headers:
            fields.append(headers_text(message.headers).encode("utf-8", "replace") or b"-")
        fields.append(b"" if message.value is None else message.value)
        return b"\t".join(fields)


async def read(cluster: Cluster, wanted: Wanted, writer: LineWriter) -> int:
    """Read and print; how many messages it was."""
    if wanted.group is not None:
        return await _read_in_group(cluster, wanted, wanted.group, writer)
    partitions = await _partitions(cluster, wanted)
    positions = await _start(cluster, partitions, wanted)
    count = 0
    async with Reader(cluster, isolation=wanted.isolation) as reader:
        await reader.assign(positions)
        if wanted.follow:
            return await _follow(reader, wanted, writer)
        async for message in reader.messages_to_end():
            writer.write(message)
            count += 1
            if count == wanted.count_max:
                break
    return count


async def _follow(reader: Reader, wanted: Wanted, writer: LineWriter) -> int:
    count = 0
    while chunk := await reader.next_chunk():
        for message in chunk.messages():
            writer.write(message)
            count += 1
            if count == wanted.count_max:
                return count
        # Whoever watches sees each chunk as it comes.
        writer.flush()
    return count


async def _partitions(cluster: Cluster, wanted: Wanted) -> list[TopicPartition]:
    chosen: list[TopicPartition] = []
    for topic in wanted.topics:
        count = len((await cluster.topic(topic)).partitions)
        numbers = range(count) if wanted.partitions is None else wanted.partitions
        check_partitions(topic, numbers, count)
        chosen += [TopicPartition(topic, number) for number in numbers]
    return chosen


async def _start(
    cluster: Cluster, partitions: list[TopicPartition], wanted: Wanted
) -> dict[TopicPartition, int]:
    place = wanted.start or "earliest"
    if place == "earliest":
        return await start_offsets(cluster, partitions)
    if place == "latest":
        return await end_offsets(cluster, partitions, isolation=wanted.isolation)
    number = _number(place)
    if number is None:
        moment_ms = parse_moment_ms(place, time.time_ns() // 1_000_000)
        return await offsets_since(cluster, partitions, moment_ms)
    starts = await start_offsets(cluster, partitions)
    ends = await end_offsets(cluster, partitions, isolation=wanted.isolation)
    if number < 0:
        return {partition: max(ends[partition] + number, starts[partition]) for partition in partitions}
    # An offset that one partition has and another has not yet: each as near as it goes.
    return {partition: min(max(number, starts[partition]), ends[partition]) for partition in partitions}


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


async def _read_in_group(cluster: Cluster, wanted: Wanted, group: str, writer: LineWriter) -> int:
    if wanted.start not in (None, "earliest", "latest"):
        raise typer.BadParameter(
            "a group goes on where it was; move it with `runnel group reset-offsets`, or start a new one "
            "with --from earliest or latest"
        )
    for topic in wanted.topics:
        await cluster.topic(topic)
    count = 0
    async with GroupConsumer(
        cluster, group, wanted.topics, start=wanted.start or "earliest", isolation=wanted.isolation
    ) as consumer:
        ends: dict[TopicPartition, int] = {}
        while wanted.count_max is None or count < wanted.count_max:
            left = None if wanted.count_max is None else wanted.count_max - count
            for message in await consumer.poll(POLL_S, left):
                writer.write(message)
                count += 1
            writer.flush()
            if not wanted.follow and consumer.assignment:
                if set(ends) != set(consumer.assignment):
                    ends = await end_offsets(cluster, consumer.assignment, isolation=wanted.isolation)
                if all(consumer.next_offset(partition) >= end for partition, end in ends.items()):
                    break
    return count
