"""The read loop and the output format of `runnel consume`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import typer

from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.group_consumer import GroupConsumer
from runnel.client.moments import InvalidMoment
from runnel.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, end_offsets
from runnel.client.reader import Reader
from runnel.client.start_positions import start_positions
from runnel.model.ids import TopicPartition
from runnel.registry.format import InvalidData
from runnel.server.cli.output import CommandError, time_text
from runnel.server.cli.records import Formatted, headers_text, to_json
from runnel.server.cli.reset import check_partitions

if TYPE_CHECKING:
    from runnel.server.cli.formats import FieldDecoder

POLL_S = 0.2
"""Poll timeout of a group member between checks for the end of its partitions."""


@dataclass(slots=True)
class ReadOptions:
    """What to read, from the command's options."""

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
        self,
        output: BinaryIO,
        as_json: bool,
        keys: bool,
        headers: bool,
        times: bool,
        offsets: bool,
        key_decoder: "FieldDecoder | None" = None,
        value_decoder: "FieldDecoder | None" = None,
    ) -> None:
        self._output = output
        self._as_json = as_json
        self._keys = keys
        self._headers = headers
        self._times = times
        self._offsets = offsets
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder

    async def write(self, message: Message) -> None:
        """Print a message; it may be buffered until `flush`."""
        key: Formatted | bytes | None = message.key
        value: Formatted | bytes | None = message.value
        if self._key_decoder is not None and (self._keys or self._as_json):
            key = await _decoded(self._key_decoder, message, "key", message.key)
        if self._value_decoder is not None:
            value = await _decoded(self._value_decoder, message, "value", message.value)
        printed = to_json(message, key, value) if self._as_json else self._line(message, key, value)
        self._output.write(printed + b"\n")

    def flush(self) -> None:
        """Flush buffered output."""
        self._output.flush()

    def _line(
        self, message: Message, key: Formatted | bytes | None, value: Formatted | bytes | None
    ) -> bytes:
        fields: list[bytes] = []
        if self._offsets:
            fields.append(f"{message.topic}-{message.partition}\t{message.offset}".encode())
        if self._times:
            fields.append((time_text(message.timestamp_ms) or "-").encode())
        if self._keys:
            fields.append(_bytes(key, b"-"))
        if self._headers:
            fields.append(headers_text(message.headers).encode("utf-8", "replace") or b"-")
        fields.append(_bytes(value, b""))
        return b"\t".join(fields)


def _bytes(field: Formatted | bytes | None, absent: bytes) -> bytes:
    if field is None:
        return absent
    return field.text if isinstance(field, Formatted) else field


async def _decoded(
    decoder: "FieldDecoder", message: Message, field: str, data: bytes | None
) -> Formatted | bytes | None:
    try:
        return await decoder.decode(data)
    except InvalidData as problem:
        raise CommandError(
            f"{message.topic}-{message.partition} at offset {message.offset}: the {field} cannot be decoded: "
            f"{problem}"
        ) from None


async def read(cluster: Cluster, options: ReadOptions, writer: LineWriter) -> int:
    """Read and print messages; returns their number."""
    if options.group is not None:
        return await _read_in_group(cluster, options, options.group, writer)
    partitions = await _partitions(cluster, options)
    positions = await _start(cluster, partitions, options)
    count = 0
    async with Reader(cluster, isolation=options.isolation) as reader:
        await reader.assign(positions)
        if options.follow:
            return await _follow(reader, options, writer)
        async for message in reader.messages_to_end():
            await writer.write(message)
            count += 1
            if count == options.count_max:
                break
    return count


async def _follow(reader: Reader, options: ReadOptions, writer: LineWriter) -> int:
    count = 0
    while chunk := await reader.next_chunk():
        for message in chunk.messages():
            await writer.write(message)
            count += 1
            if count == options.count_max:
                return count
        # A reader of the output sees each chunk on arrival.
        writer.flush()
    return count


async def _partitions(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    chosen: list[TopicPartition] = []
    for topic in options.topics:
        count = len((await cluster.topic(topic)).partitions)
        numbers = range(count) if options.partitions is None else options.partitions
        check_partitions(topic, numbers, count)
        chosen += [TopicPartition(topic, number) for number in numbers]
    return chosen


async def _start(
    cluster: Cluster, partitions: list[TopicPartition], options: ReadOptions
) -> dict[TopicPartition, int]:
    try:
        return await start_positions(
            cluster, partitions, options.start or "earliest", isolation=options.isolation
        )
    except InvalidMoment as error:
        raise typer.BadParameter(str(error)) from None


async def _read_in_group(cluster: Cluster, options: ReadOptions, group: str, writer: LineWriter) -> int:
    if options.start not in (None, "earliest", "latest"):
        raise typer.BadParameter(
            "a group resumes at its committed offsets: reset it with `runnel group reset-offsets`, or use "
            "--from earliest or latest for a new group"
        )
    for topic in options.topics:
        await cluster.topic(topic)
    count = 0
    async with GroupConsumer(
        cluster, group, options.topics, start=options.start or "earliest", isolation=options.isolation
    ) as consumer:
        ends: dict[TopicPartition, int] = {}
        while options.count_max is None or count < options.count_max:
            left = None if options.count_max is None else options.count_max - count
            messages = await consumer.poll(POLL_S, left)
            await _write_polled(consumer, messages, writer)
            count += len(messages)
            if not options.follow and consumer.assignment:
                if set(ends) != set(consumer.assignment):
                    ends = await end_offsets(cluster, consumer.assignment, isolation=options.isolation)
                if all(consumer.next_offset(partition) >= end for partition, end in ends.items()):
                    break
    return count


async def _write_polled(consumer: GroupConsumer, messages: list[Message], writer: LineWriter) -> None:
    """Print what a member has polled; what was not printed is not committed."""
    written = 0
    try:
        for message in messages:
            await writer.write(message)
            written += 1
        writer.flush()
    except BaseException as error:
        if isinstance(error, OSError) or not _is_flushed(writer):
            # Which of the buffered lines were printed is not known.
            written = 0
        if written < len(messages):
            consumer.give_back(messages[written])
        raise


def _is_flushed(writer: LineWriter) -> bool:
    try:
        writer.flush()
    except OSError:
        return False
    return True
