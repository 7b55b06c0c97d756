"""Text formats of records: lines and JSON."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runnel.batch.records import Headers
from runnel.client.chunk import Message
from runnel.server.cli.output import CommandError, time_text

FIELDS = frozenset(
    [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp_ms",
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
    ]
)


@dataclass(slots=True)
class ProducerRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def from_line(line: bytes, key_separator: bytes | None) -> ProducerRecord:
    """A line is a value, or a key and a value around a separator."""
    if key_separator is None:
        return ProducerRecord(line)
    key, found, value = line.partition(key_separator)
    if not found:
        text = line.decode(errors="replace")
        raise CommandError(f"no key separator {key_separator.decode()!r} in line {text!r}")
    return ProducerRecord(value, key)


def from_json(line: bytes) -> ProducerRecord:
    """Parse a JSON object as `consume --json` prints it."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CommandError(f"not JSON: {line.decode(errors='replace')!r} ({error})") from None
    if not isinstance(document, dict):
        raise CommandError(f"not a JSON object: {line.decode(errors='replace')!r}")
    _check_fields(document, line)
    return ProducerRecord(
        _bytes(document, "value"),
        _bytes(document, "key"),
        _headers(document.get("headers") or []),
        # With an offset, the partition is the source of a consumed record, not a target.
        None if "offset" in document else _number(document, "partition"),
        _number(document, "timestamp_ms"),
    )


def _check_fields(document: dict[str, Any], line: bytes) -> None:
    # A misspelt `value` would otherwise produce a tombstone, which deletes the key in a compacted topic.
    unknown = sorted(document.keys() - FIELDS)
    if unknown:
        raise CommandError(f"unknown field {unknown[0]!r}; valid fields: {', '.join(sorted(FIELDS))}")
    if "value" not in document and "value_base64" not in document:
        raise CommandError(
            f"missing field 'value' in {line.decode(errors='replace')!r}; use null for a tombstone"
        )


def to_json(message: Message) -> bytes:
    """One message as a JSON object on one line. Bytes that are not UTF-8 become `…_base64`."""
    document: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": time_text(message.timestamp_ms),
        "timestamp_ms": message.timestamp_ms,
        **_text_field("key", message.key),
        **_text_field("value", message.value),
        "headers": [{"name": name, **_text_field("value", value)} for name, value in message.headers],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


def headers_text(headers: Headers) -> str:
    """Headers on one line."""
    return ",".join(
        f"{name}={'' if value is None else value.decode(errors='replace')}" for name, value in headers
    )


def parse_headers(texts: Sequence[str] | None) -> list[tuple[str, bytes | None]]:
    """Parse name=value pairs; a name alone has a null value."""
    headers: list[tuple[str, bytes | None]] = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        headers.append((name, value.encode("utf-8", "surrogateescape") if equals else None))
    return headers


def _text_field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError):
            raise CommandError(f"{name}_base64 is not base64: {encoded!r}") from None
    value = document.get(name)
    if value is None:
        return None
    # An object or a number is sent as its JSON text.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogateescape")


def _headers(headers: Any) -> list[tuple[str, bytes | None]]:
    if isinstance(headers, dict):
        return [(name, _bytes({"value": value}, "value")) for name, value in headers.items()]
    try:
        return [(str(header["name"]), _bytes(header, "value")) for header in headers]
    except (TypeError, KeyError):
        raise CommandError(
            f'headers must be {{"name": "value"}} or [{{"name": …, "value": …}}], not {headers!r}'
        ) from None


def _number(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise CommandError(f"{name} must be a non-negative integer, not {value!r}")
    return value
