"""A message as it is shown: decoded, and as commands that read it again."""

import base64
import json
import shlex
from dataclasses import dataclass

from runnel.batch.records import IDEMPOTENCY_KEY_HEADER
from runnel.client.chunk import Message
from runnel.gateway.console.text import hex_dump, shown_bytes
from runnel.gateway.json_text import indented

PREVIEW = 180
KEY_PREVIEW = 48
TEXT_MAX = 512 * 1024
"""Bytes of a value that are shown; the rest has to be read with a command."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list of messages."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    size: int


def row_of(message: Message) -> Row:
    """The line of a message."""
    return Row(
        message.partition,
        message.offset,
        message.timestamp_ms,
        None if message.key is None else shown_bytes(message.key, KEY_PREVIEW),
        None if message.value is None else " ".join(shown_bytes(message.value, PREVIEW).split()),
        len(message.key or b"") + len(message.value or b""),
    )


def as_json(value: bytes) -> str | None:
    """Indented JSON; None if it is not JSON, or too large."""
    if len(value) > TEXT_MAX:
        return None
    try:
        return indented(json.loads(value))
    except (ValueError, RecursionError):
        return None


def is_binary(value: bytes) -> bool:
    """Is it no text, as far as it is shown?"""
    try:
        value[:TEXT_MAX].decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the limit.
        return len(value) <= TEXT_MAX or error.start < TEXT_MAX - 4
    return False


def decoded(value: bytes | None, wanted: str) -> tuple[str, str]:
    """(format, text) of a value; the format that was asked for, or the one that fits.

    May take long: not for the event loop.
    """
    if value is None:
        return "null", ""
    if wanted in ("", "json") and (text := as_json(value)) is not None:
        return "json", text
    if wanted == "hex" or (wanted == "" and is_binary(value)):
        return "hex", hex_dump(value)
    more = f"\n… {len(value) - TEXT_MAX} more bytes" if len(value) > TEXT_MAX else ""
    return "text", value[:TEXT_MAX].decode("utf-8", "replace") + more


def editable(value: bytes | None) -> tuple[str, bool]:
    """A value for a form, and whether it is in base64."""
    if value is None:
        return "", False
    try:
        return value.decode("utf-8"), False
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii"), True


def commands_of(message: Message, bootstrap: str) -> list[tuple[str, str]]:
    """(name, command) that reads the message again."""
    first = bootstrap.split(",")[0]
    topic = shlex.quote(message.topic)
    runnel = (
        f"runnel consume {topic} --partition {message.partition} --from {message.offset} --max 1 --json "
        f"-b {first}"
    )
    kcat = f"kcat -C -b {first} -t {topic} -p {message.partition} -o {message.offset} -c 1 -J"
    python = (
        "from kafka import KafkaConsumer, TopicPartition\n"
        f"consumer = KafkaConsumer(bootstrap_servers={first!r})\n"
        f"partition = TopicPartition({message.topic!r}, {message.partition})\n"
        "consumer.assign([partition])\n"
        f"consumer.seek(partition, {message.offset})\n"
        "print(next(consumer))"
    )
    return [("runnel", runnel), ("kcat", kcat), ("Python", python)]


def headers_text(message: Message) -> str:
    """Headers as lines of a form, to be sent again; an idempotency key is that of the first record."""
    return "\n".join(
        name if value is None else f"{name}={value.decode('utf-8', 'replace')}"
        for name, value in message.headers
        if name != IDEMPOTENCY_KEY_HEADER
    )
