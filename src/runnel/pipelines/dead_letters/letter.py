"""Headers of dead letters, and the headers of redriven records."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.batch.records import IDEMPOTENCY_KEY_HEADER
from runnel.model.ids import NO_ID, id_text

PREFIX = "runnel.dead-letter."
REASON, TOPIC, PARTITION = f"{PREFIX}reason", f"{PREFIX}topic", f"{PREFIX}partition"
OFFSET, TIMESTAMP, PIPELINE = f"{PREFIX}offset", f"{PREFIX}timestamp", f"{PREFIX}pipeline"
ATTEMPT = "runnel.redrive.attempt"
"""The number of redrives of a record."""
CONNECT = "__connect.errors."
"""Header prefix of Kafka Connect's dead letters."""
DEAD_LETTERS = ".dead-letters"
"""The default suffix of dead-letter topics."""
MARKS = ".redriven"
"""Suffix of the compacted topic with the keys of redriven letters."""

Headers = Sequence[tuple[str, bytes | None]]

_ALIASES = {
    REASON: (REASON, f"{CONNECT}exception.message", f"{CONNECT}exception.class.name"),
    TOPIC: (TOPIC, f"{CONNECT}topic"),
    PARTITION: (PARTITION, f"{CONNECT}partition"),
    OFFSET: (OFFSET, f"{CONNECT}offset"),
    TIMESTAMP: (TIMESTAMP,),
    PIPELINE: (PIPELINE, f"{CONNECT}connector.name"),
}
_NUMBER = re.compile(r"\d+")
_KIND_LENGTH = 160


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter: its position, origin and contents."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str = ""
    source_topic: str | None = None
    source_partition: int | None = None
    source_offset: int | None = None
    source_timestamp_ms: int | None = None
    pipeline: str = ""

    @property
    def attempts(self) -> int:
        """The number of earlier redrives."""
        return attempts_of(self.headers)


def mark_of(topic_id: bytes, partition: int, offset: int) -> str:
    """The key of a letter in the topic of redriven letters.

    It contains the topic id, if there is one: a recreated topic starts at offset 0 again.
    """
    position = f"{partition}:{offset}"
    return position if topic_id == NO_ID else f"{id_text(topic_id)}:{position}"


def read_letter(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> Letter:
    """A record of a dead-letter topic as a letter."""
    # Use the last header of a name: a letter that failed again has the earlier headers as well.
    texts = {name: header.decode("utf-8", "replace") for name, header in headers if header is not None}

    def text(name: str) -> str | None:
        return next((texts[alias] for alias in _ALIASES[name] if alias in texts), None)

    return Letter(
        topic,
        partition,
        offset,
        timestamp_ms,
        key,
        value,
        headers,
        text(REASON) or "no reason given",
        text(TOPIC) or None,
        _number(text(PARTITION)),
        _number(text(OFFSET)),
        _number(text(TIMESTAMP)),
        text(PIPELINE) or "",
    )


def attempts_of(headers: Headers) -> int:
    """The number of redrives of a record with these headers."""
    found = [_number((value or b"").decode("utf-8", "replace")) for name, value in headers if name == ATTEMPT]
    return max((number for number in found if number is not None), default=0)


def headers_back(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The original headers, and the number of redrives.

    Not the idempotency key: the record that had it first is in the topic already, and this is another one.
    """
    own = [
        (name, value)
        for name, value in headers
        if not name.startswith((PREFIX, CONNECT)) and name not in (ATTEMPT, IDEMPOTENCY_KEY_HEADER)
    ]
    return [*own, (ATTEMPT, str(attempts_of(headers) + 1).encode())]


def kind_of(reason: str) -> str:
    """Normalize a reason: numbers, such as positions in malformed values, are replaced."""
    return _NUMBER.sub("#", reason)[:_KIND_LENGTH]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
