"""CloudEvents 1.0: the HTTP binding in and out, and the Kafka binding in the log. No I/O.

| mode       | HTTP                                 | record                                                |
|------------|--------------------------------------|-------------------------------------------------------|
| binary     | `ce-*` headers, any content type     | `ce_*` headers, `content-type`; the body is the value |
| structured | application/cloudevents+json         | the JSON is the value; `content-type` says so         |
| batch      | application/cloudevents-batch+json   | a structured record for each event                    |

The key is the extension `partitionkey`. No data is a null value: a tombstone in a compacted topic.
"""

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Raw
from starlette.responses import Response

from runnel.client.chunk import Message
from runnel.gateway.http.counting import Element, check_count
from runnel.gateway.http.models import Format
from runnel.gateway.http.operations import JSON
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.records import OutgoingRecord, View, as_json, text_or_none
from runnel.gateway.turns import converted

if TYPE_CHECKING:
    from runnel.gateway.http.requests import Call

EVENT = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
PREFIX = "ce-"
RECORD_PREFIX = "ce_"
REQUIRED = ("id", "source", "specversion", "type")
VERSION = "1.0"
PARTITION_KEY = "partitionkey"
MESSAGE_ID = "messageid"
"""The extension attribute with which a message is acknowledged."""

PLAIN_TYPE = "io.runnel.record"
"""The type of an event that is made of a record that is none."""

_NAME = re.compile(r"[a-z0-9]{1,100}")
_CONTENT_TYPE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,200}")
OCTETS = "application/octet-stream"
INERT = {
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "attachment",
}
"""Records choose their content type: a browser neither shows nor runs them with the rights of a page here."""

_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")


class EventAttributes(msgspec.Struct):
    """What every event has; further attributes and the data are kept as they are."""

    id: str
    source: str
    specversion: str
    type: str
    partitionkey: str | None = None


def is_event(media_type: str, headers: Mapping[str, str]) -> bool:
    """Is the body a CloudEvent, or a batch of them?"""
    return media_type in (EVENT, BATCH) or "ce-specversion" in headers


def to_records(media_type: str, headers: Mapping[str, str], body: bytes) -> list[OutgoingRecord]:
    """The records of a request; 400 or 422 if it has no valid events."""
    # The batch first: its name begins like the other.
    if media_type == BATCH:
        check_count(body, list[Element], _decode)
        return [_structured(bytes(event)) for event in _decode(body, list[Raw])]
    if media_type == EVENT:
        return [_structured(body)]
    return [_binary(headers, body)]


def _structured(event: bytes) -> OutgoingRecord:
    attributes = _decode(event, EventAttributes)
    _check(msgspec.structs.asdict(attributes))
    key = attributes.partitionkey
    content_type = f"{EVENT}; charset=UTF-8".encode()
    return OutgoingRecord(None if key is None else key.encode(), event, [("content-type", content_type)])


def _binary(headers: Mapping[str, str], body: bytes) -> OutgoingRecord:
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(PREFIX):
            attribute = name.removeprefix(PREFIX)
            if _NAME.fullmatch(attribute) is None:
                raise Problem(422, f"{attribute!r} is not the name of an attribute of a CloudEvent")
            attributes[attribute] = _percent_decoded(attribute, value)
    _check(attributes)
    record_headers: list[tuple[str, bytes | None]] = [
        (RECORD_PREFIX + name, value.encode()) for name, value in attributes.items()
    ]
    if "content-type" in headers:
        record_headers.append(("content-type", headers["content-type"].encode("latin-1", "replace")))
    key = attributes.get(PARTITION_KEY)
    return OutgoingRecord(None if key is None else key.encode(), body or None, record_headers)


def _percent_decoded(name: str, value: str) -> str:
    """Header values are percent-encoded UTF-8; broken ones are refused."""
    try:
        if _BROKEN.search(value) is None:
            return unquote_to_bytes(value.encode("ascii")).decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        pass
    raise Problem(422, f"the attribute {name} is not percent-encoded UTF-8")


def _check(attributes: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        if not attributes.get(name):
            raise Problem(422, f"the CloudEvent has no {name}")
    if attributes["specversion"] != VERSION:
        raise Problem(422, f"only version {VERSION} of CloudEvents is supported")


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, f"the CloudEvent is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


# Out.


def is_single(call: "Call", form: Format) -> bool:
    """Does the client ask for one event, as the whole response?"""
    return not call.accepts(BATCH) and (call.accepts(EVENT) or form is Format.CLOUDEVENTS)


async def response_of(
    call: "Call", shown: View, topic: str, messages: list[Message], cursor: str
) -> Response | None:
    """Messages as CloudEvents, if the client asks for them; None if it does not."""
    headers = {"cache-control": "no-store", "runnel-next": cursor}
    if call.accepts(BATCH):
        events = await converted(messages, lambda message: to_event(message, shown, topic))
        return Response(msgspec.json.encode(events), 200, headers, BATCH)
    is_structured = call.accepts(EVENT)
    if not is_structured and shown.format is not Format.CLOUDEVENTS:
        return None
    if not messages:
        return Response(status_code=204, headers=headers)
    event = to_event(messages[0], shown, topic)
    if is_structured:
        return Response(msgspec.json.encode(event), 200, headers, EVENT)
    data, content_type = _data(event)
    for name, value in event.items():
        if name not in ("data", "data_base64", "datacontenttype") and _NAME.fullmatch(name):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            headers[PREFIX + name] = quote(text, safe=" !#$&'()*+,/:;=?@[]^_`{|}~.-")
    # In a header: what a record has there may be anything.
    is_type = _CONTENT_TYPE.fullmatch(content_type) is not None
    kind = content_type if is_type else OCTETS
    return Response(data, 200, {**headers, **INERT, "content-type": kind})


def _data(event: Mapping[str, Any]) -> tuple[bytes, str]:
    kind = str(event.get("datacontenttype", JSON))
    if "data_base64" in event:
        return base64.b64decode(event["data_base64"]), kind
    if "data" not in event:
        # Nothing is not JSON.
        return b"", OCTETS
    data = event["data"]
    return (data.encode() if isinstance(data, str) and "json" not in kind else _json(data)), kind


def _json(data: Any) -> bytes:
    return bytes(data) if isinstance(data, Raw) else msgspec.json.encode(data)


def to_event(message: Message, shown: View, topic: str) -> dict[str, Any]:
    """A record as a CloudEvent; one that is none becomes the data of an event about it."""
    headers = {name: text_or_none(value or b"") for name, value in message.headers}
    event: dict[str, Any] | None = None
    if (headers.get("content-type") or "").lower().startswith(EVENT):
        event = _stored_event(message.value)
    elif headers.get("ce_specversion"):
        event = _from_binary(headers, message.value)
    if event is None:
        event = {
            "specversion": VERSION,
            "id": f"{message.partition}-{message.offset}",
            "source": f"/topics/{topic}",
            "type": PLAIN_TYPE,
            **_as_data(message.value, None),
        }
        if message.key is not None and (key := text_or_none(message.key)):
            event[PARTITION_KEY] = key
    event[MESSAGE_ID] = shown.message_id(message.partition, message.offset)
    return event


def _stored_event(value: bytes | None) -> dict[str, Any] | None:
    try:
        event = msgspec.json.decode(value or b"", type=dict[str, Raw])
        return {
            name: msgspec.json.decode(raw) if name in REQUIRED or bytes(raw).startswith(b'"') else raw
            for name, raw in event.items()
        }
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _from_binary(headers: Mapping[str, str | None], value: bytes | None) -> dict[str, Any]:
    event: dict[str, Any] = {
        name.removeprefix(RECORD_PREFIX): text
        for name, text in headers.items()
        if name.startswith(RECORD_PREFIX) and text is not None
    }
    return {**event, **_as_data(value, headers.get("content-type"))}


def _as_data(value: bytes | None, content_type: str | None) -> dict[str, Any]:
    if value is None:
        return {}
    named = {} if content_type is None else {"datacontenttype": content_type}
    is_json = content_type is None or "json" in content_type
    if is_json and (raw := as_json(value)) is not None:
        return {**named, "datacontenttype": content_type or JSON, "data": raw}
    text = text_or_none(value)
    if text is None:
        return {**named, "data_base64": base64.b64encode(value).decode()}
    return {"datacontenttype": "text/plain", **named, "data": text}
