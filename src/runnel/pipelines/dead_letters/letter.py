"""What the headers of a dead letter mean, and the headers with which it is sent back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.model.ids import NO_ID, id_text

PREFIX = "runnel.dead-letter."
REASON, TOPIC, PARTITION = f"{PREFIX}reason", f"{PREFIX}topic", f"{PREFIX}partition"
OFFSET, TIMESTAMP, PIPELINE = f"{PREFIX}offset", f"{PREFIX}timestamp", f"{PREFIX}pipeline"
ATTEMPT = "runnel.redrive.attempt"
"""How often a record has been sent back."""
CONNECT = "__connect.errors."
"""Kafka Connect's dead letters say the same under names of their own."""
DEAD_LETTERS = ".dead-letters"
"""What the name of a dead-letter topic ends with, unless its pipeline chose another."""

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
    """One dead letter: where it is, where it came from, and what it holds."""

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
        """How often it has been sent back before."""
        return attempts_of(self.headers)


def mark_of(topic_id: bytes, partition: int, offset: int) -> str:
    """What a letter is called among those that were sent back.

    With its topic's id, where the broker has one: a recreated topic starts at offset 0 again.
    """
    place = f"{partition}:{offset}"
    return place if topic_id == NO_ID else f"{id_text(topic_id)}:{place}"


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
    # The last of a name counts: a letter that failed again has the headers of the first time as well.
    told = {name: header.decode("utf-8", "replace") for name, header in headers if header is not None}

    def text(name: str) -> str | None:
        return next((told[alias] for alias in _ALIASES[name] if alias in told), None)

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
    """How often a record with these headers has been sent back before."""
    found = [_number((value or b"").decode("utf-8", "replace")) for name, value in headers if name == ATTEMPT]
    return max((number for number in found if number is not None), default=0)


def headers_back(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that the record had, and how often it has been sent back."""
    own = [
        (name, value) for name, value in headers if not name.startswith((PREFIX, CONNECT)) and name != ATTEMPT
    ]
    return [*own, (ATTEMPT, str(attempts_of(headers) + 1).encode())]


def kind_of(reason: str) -> str:
    """Reasons that differ in numbers only are one: those of two malformed values never say the same place."""
    return _NUMBER.sub("#", reason)[:_KIND_LENGTH]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
