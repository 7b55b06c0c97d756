"""Text formats of records: lines and JSON."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runnel.batch.records import Headers
from runnel.client.chunk import Message
from runnel.server.cli.output import CommandError, time_text
from runnel.server.cli.schema_options import Format

FIELDS = frozenset(
    [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp_ms",
        "headers",
        *(name + suffix for name in ("key", "value") for suffix in ("", "_base64", "_schema_id", "_message")),
    ]
)


@dataclass(frozen=True, slots=True)
class WrittenWith:
    """The schema that a key or value was written with, as a line of JSON names it."""

    schema_id: int
    message: str | None


@dataclass(frozen=True, slots=True)
class Formatted:
    """A key or value that was decoded with a schema."""

    value: Any
    """As JSON has it."""
    schema_id: int
    message: str | None
    """The name of the Protobuf message."""

    @property
    def text(self) -> bytes:
        return json_text(self.value)


@dataclass(slots=True)
class ProducerRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None
    value_schema: WrittenWith | None = None
    key_schema: WrittenWith | None = None


def from_line(line: bytes, key_separator: bytes | None) -> ProducerRecord:
    """A line is a value, or a key and a value around a separator."""
    if key_separator is None:
        return ProducerRecord(line)
    key, found, value = line.partition(key_separator)
    if not found:
        text = line.decode(errors="replace")
        raise CommandError(f"no key separator {key_separator.decode()!r} in line {text!r}")
    return ProducerRecord(value, key)


def from_json(
    line: bytes, *, key_format: Format | None = None, value_format: Format | None = None
) -> ProducerRecord:
    """Parse a JSON object as `consume --json` prints it."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"not JSON: {line.decode(errors='replace')!r} ({error})") from None
    if not isinstance(document, dict):
        raise CommandError(f"not a JSON object: {line.decode(errors='replace')!r}")
    _check_fields(document, line)
    value, value_schema = _field(document, "value", value_format)
    key, key_schema = _field(document, "key", key_format)
    return ProducerRecord(
        value,
        key,
        _headers(document.get("headers") or []),
        # With an offset, the partition is the source of a consumed record, not a target.
        None if "offset" in document else _number(document, "partition"),
        _number(document, "timestamp_ms"),
        value_schema,
        key_schema,
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


def to_json(message: Message, key: Formatted | bytes | None, value: Formatted | bytes | None) -> bytes:
    """One message as a JSON object on one line. Bytes that are not UTF-8 become `…_base64`."""
    return json_text(
        {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": time_text(message.timestamp_ms),
            "timestamp_ms": message.timestamp_ms,
            **_printed_field("key", key),
            **_printed_field("value", value),
            "headers": [{"name": name, **_text_field("value", value)} for name, value in message.headers],
        }
    )


def json_text(value: Any) -> bytes:
    """JSON on one line."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Half of a surrogate pair, which only escapes can express.
        return json.dumps(value, separators=(",", ":")).encode()


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


def _printed_field(name: str, value: Formatted | bytes | None) -> dict[str, Any]:
    if not isinstance(value, Formatted):
        return _text_field(name, value)
    named = {} if value.message is None else {f"{name}_message": value.message}
    return {name: value.value, f"{name}_schema_id": value.schema_id, **named}


def _field(
    document: dict[str, Any], name: str, wanted: Format | None
) -> tuple[bytes | None, WrittenWith | None]:
    """The bytes of a key or value, or its JSON if it is to be encoded with a schema, and with which one."""
    schema_id, message = _number(document, f"{name}_schema_id"), document.get(f"{name}_message")
    if schema_id is None and wanted in (None, Format.AUTO):
        return _bytes(document, name), None
    if wanted is None:
        raise CommandError(f"{name}_schema_id requires --{name}-format, for example auto")
    if f"{name}_base64" in document:
        raise CommandError(f"{name}_base64 cannot be encoded with a schema: {name} is needed")
    if message is not None and not isinstance(message, str):
        raise CommandError(f"{name}_message must be a name, not {message!r}")
    if schema_id is not None:
        return json_text(document.get(name)), WrittenWith(schema_id, message)
    return (None if document.get(name) is None else json_text(document[name])), None


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
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else json_text(value)


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
