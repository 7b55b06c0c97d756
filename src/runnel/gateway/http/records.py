"""Records of requests ↔ bytes in Kafka. No I/O."""

import base64
import re
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from runnel.batch.records import Headers
from runnel.client.chunk import Message as KafkaMessage
from runnel.gateway.http.limits import BATCH_RECORDS_MAX, HEADERS_BYTES_MAX, RECORD_HEADERS_MAX
from runnel.gateway.http.message_ids import message_ids
from runnel.gateway.http.models import (
    RENAMED,
    Base64,
    Format,
    Header,
    IdempotencyKey,
    Message,
    Partition,
    Timestamp,
)
from runnel.gateway.http.problems import Problem
from runnel.model.limits import IDEMPOTENCY_KEY_BYTES_MAX

T = TypeVar("T")
TRACE_HEADER = "traceparent"
_BRACKETS = (b"{", b"[")
_read_text = msgspec.json.Decoder(str).decode
_read_headers = msgspec.json.Decoder(dict[str, str | None]).decode
_read_pairs = msgspec.json.Decoder(list[Header]).decode
_write_text = msgspec.json.Encoder().encode
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""The W3C form; any other is ignored: it would be copied to every record of a request."""


@dataclass(slots=True)
class OutgoingRecord:
    """A record as it is produced."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp_ms: int | None = None
    idempotency_key: bytes | None = None


class GivenRecord(Struct, forbid_unknown_fields=True, rename=RENAMED):
    """A PublishRecord whose headers are not decoded yet: each becomes an object."""

    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    headers: Raw | UnsetType = UNSET
    headers_list: Raw | UnsetType = UNSET
    key_base64: Base64 | UnsetType = UNSET
    value_base64: Base64 | UnsetType = UNSET
    partition: Partition | None = None
    timestamp: Timestamp | None = None
    idempotency_key: IdempotencyKey | None = None

    @property
    def headers_bytes(self) -> int:
        """The bytes of the headers as JSON."""
        given = (self.headers, self.headers_list)
        return sum(0 if isinstance(each, UnsetType) else len(each) for each in given)


def check_batch(records: Sized) -> None:
    """413 for more records than one request may have; called before they are converted."""
    if len(records) > BATCH_RECORDS_MAX:
        raise Problem(413, f"more than {BATCH_RECORDS_MAX} records in a request")


def check_headers(headers: Sized) -> None:
    """422 for more headers than a record may have."""
    if len(headers) > RECORD_HEADERS_MAX:
        raise Problem(422, f"the record has more than {RECORD_HEADERS_MAX} headers")


def from_base64(text: str, *, code: int | None = None) -> bytes:
    """The bytes; 422 if the text is not base64. Much quicker than a pattern of the model."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Problem(422, "binary data is not base64", code=code) from None


def to_record(given: GivenRecord, traceparent: str | None = None) -> OutgoingRecord:
    """The bytes of a record; 422 if it says something twice, or has no value."""
    if given.value is UNSET and given.value_base64 is UNSET:
        raise Problem(422, "the record has neither value nor value_base64; a tombstone has the value null")
    headers = [] if given.headers is UNSET and given.headers_list is UNSET else _headers(given)
    if (
        traceparent is not None
        and _TRACE.fullmatch(traceparent)
        and all(name != TRACE_HEADER for name, _ in headers)
    ):
        headers.append((TRACE_HEADER, traceparent.encode()))
    check_headers(headers)
    key = given.idempotency_key
    return OutgoingRecord(
        _bytes("key", given.key, given.key_base64),
        _bytes("value", given.value, given.value_base64),
        headers,
        given.partition,
        given.timestamp,
        None if key is None else _idempotency_key(key),
    )


def _idempotency_key(text: str) -> bytes:
    key = text.encode()
    if len(key) > IDEMPOTENCY_KEY_BYTES_MAX:
        raise Problem(422, f"the idempotencyKey has more than {IDEMPOTENCY_KEY_BYTES_MAX} bytes")
    return key


def _bytes(name: str, plain: Raw | UnsetType, encoded: str | UnsetType) -> bytes | None:
    if not isinstance(encoded, UnsetType):
        if not isinstance(plain, UnsetType):
            raise Problem(422, f"the record has both {name} and {name}_base64")
        return from_base64(encoded)
    if isinstance(plain, UnsetType):
        return None
    return text_of(plain)


def text_of(plain: Raw) -> bytes | None:
    """The bytes for JSON: a string without its quotes, nothing for null, any other value as it was sent."""
    raw = bytes(plain)
    if raw.startswith(b'"'):
        try:
            return _read_text(raw).encode()
        except msgspec.DecodeError as error:
            raise Problem(400, f"a text is not JSON: {error}") from None
    return None if raw == b"null" else raw


def _headers(given: GivenRecord) -> list[tuple[str, bytes | None]]:
    plain: dict[str, str | None] = {}
    pairs: list[Header] = []
    if not isinstance(given.headers, UnsetType):
        plain = _decoded("headers", given.headers, _read_headers)
    if not isinstance(given.headers_list, UnsetType):
        pairs = _decoded("headersList", given.headers_list, _read_pairs)
    found = [(name, None if value is None else value.encode()) for name, value in plain.items()]
    for header in pairs:
        if not isinstance(header.value_base64, UnsetType):
            if not isinstance(header.value, UnsetType):
                raise Problem(422, f"the header {header.name!r} has both value and value_base64")
            found.append((header.name, from_base64(header.value_base64)))
        else:
            text = None if isinstance(header.value, UnsetType) else header.value
            found.append((header.name, None if text is None else text.encode()))
    return found


def _decoded(name: str, given: Raw, read: Callable[[Raw], T]) -> T:
    if len(given) > HEADERS_BYTES_MAX:
        raise Problem(413, f"{name} of the record has more than {HEADERS_BYTES_MAX} bytes")
    try:
        return read(given)
    except msgspec.ValidationError as error:
        raise Problem(422, f"{name} of the record is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class View:
    """How messages of a topic are shown to a client."""

    topic_id: bytes
    format: Format = Format.JSON
    group: str = ""
    is_replayed: bool = False

    def message_id(self, partition: int, offset: int) -> str:
        """The id of a message."""
        return message_ids(self.topic_id, partition, self.group, self.is_replayed).text(offset)

    def of(self, message: KafkaMessage) -> Message:
        """A message as it is shown."""
        shown = Message(
            self.message_id(message.partition, message.offset),
            message.partition,
            message.offset,
            message.timestamp_ms,
            {},
            None,
        )
        if message.key is not None:
            self._show_key(shown, message.key)
        self._show_value(shown, message.value)
        if message.headers:
            show_headers(shown, message.headers)
        return shown

    def _show_key(self, shown: Message, key: bytes) -> None:
        text = None if self.format is Format.BASE64 else text_or_none(key)
        if text is not None:
            shown.key = text
        else:
            shown.key = UNSET
            shown.key_base64 = base64.b64encode(key).decode()

    def _show_value(self, shown: Message, value: bytes | None) -> None:
        if value is None:
            shown.value = NULL
            return
        if self.format is not Format.BASE64:
            if value.startswith(_BRACKETS) and self.format is not Format.TEXT and (raw := as_json(value)):
                shown.value = raw
                return
            text = text_or_none(value)
            if text is not None:
                shown.value = Raw(_write_text(text))
                return
        shown.value_base64 = base64.b64encode(value).decode()


NULL = Raw(b"null")


def text_or_none(data: bytes) -> str | None:
    """The text; None if the bytes are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def as_json(value: bytes) -> Raw | None:
    """The value in one line, as it is written; None if it is not JSON."""
    try:
        # Of a raw value the syntax is checked, and no objects are made; the encoding is not checked.
        value.decode()
        msgspec.json.decode(value, type=Raw)
        if b"\n" in value or b"\r" in value:
            value = msgspec.json.format(value, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Raw(value)


def show_headers(shown: Message, headers: Headers) -> None:
    """The headers by name; and all of them in order, if the names do not tell everything."""
    is_lossy = False
    for name, value in headers:
        text = None if value is None else text_or_none(value)
        is_lossy = is_lossy or name in shown.headers or (text is None and value is not None)
        if value is None or text is not None:
            shown.headers[name] = text
    if is_lossy:
        shown.headers_list = list(_all_headers(headers))


def _all_headers(headers: Headers) -> Iterable[Header]:
    for name, value in headers:
        text = None if value is None else text_or_none(value)
        if value is None or text is not None:
            yield Header(name, text)
        else:
            yield Header(name, value_base64=base64.b64encode(value).decode())
