"""Framing: the size prefix, and request and response headers.

A frame is the bytes after the four of its size. Request headers: v1 has the client's name, v2 adds tagged
fields; the name stays a plain string even there, because a broker must be able to read it before it knows
the version. The header that ends before the name (v0) belonged to an API that no longer exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any

from runnel.model.limits import REQUEST_TAGS_MAX
from runnel.wire.codec import encode
from runnel.wire.primitives import MalformedMessage, skip_tags
from runnel.wire.struct import Request, Response, is_flexible

API_VERSIONS_KEY = 18
NEVER = 1 << 15  # above every version

_read_request_head = Layout(">hhih").unpack_from
_REQUEST_PREFIX = Layout(">ihhih")
_RESPONSE_PREFIX = Layout(">ii")
_RESPONSE_PREFIX_FLEXIBLE = Layout(">iix")
_CORRELATION = Layout(">i")


@dataclass(slots=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Position of the message in the frame."""


def read_request_header(frame: memoryview, flexible_from: Mapping[int, int]) -> RequestHeader:
    """Parse the header; `flexible_from` maps API keys to the first version with tagged fields in it."""
    try:
        api_key, api_version, correlation_id, length = _read_request_head(frame)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            client_id = frame[10:position].tobytes().decode()
        elif length != -1:
            raise MalformedMessage("the client id has a negative length")
        if api_version >= flexible_from.get(api_key, NEVER):
            tags = frame[position]
            position += 1
            if tags:
                position, _ = skip_tags(frame, position, tags, REQUEST_TAGS_MAX)
    except (LayoutError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header: {error}") from error
    if position > len(frame):
        raise MalformedMessage("request header: the client id is longer than the frame")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def size_of(buffers: list[Any]) -> int:
    """Total size of a list of buffers; file slices have a `length`."""
    size_bytes = 0
    for piece in buffers:
        kind = type(piece)
        size_bytes += len(piece) if kind is bytes or kind is memoryview or kind is bytearray else piece.length
    return size_bytes


def has_flexible_header(response: type[Response], version: int) -> bool:
    """Whether the response header has tagged fields.

    Never for ApiVersions: its reader does not know yet what we speak.
    """
    first = response.flexible_from
    return first is not None and version >= first and response.api_key != API_VERSIONS_KEY


def response_frame(response: Response, version: int, correlation_id: int) -> list[Any]:
    """Size, header and message, as buffers to send in this order."""
    buffers = encode(response, version)
    if has_flexible_header(type(response), version):
        buffers[0] = _RESPONSE_PREFIX_FLEXIBLE.pack(size_of(buffers) + 5, correlation_id) + buffers[0]
    else:
        buffers[0] = _RESPONSE_PREFIX.pack(size_of(buffers) + 4, correlation_id) + buffers[0]
    return buffers


def request_frame(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Size, header and message of a request."""
    buffers = encode(request, version)
    name = b"" if client_id is None else client_id.encode()
    tail = name + b"\x00" if is_flexible(type(request), version) else name
    buffers[0] = (
        _REQUEST_PREFIX.pack(
            size_of(buffers) + 10 + len(tail),
            request.api_key,
            version,
            correlation_id,
            -1 if client_id is None else len(name),
        )
        + tail
        + buffers[0]
    )
    return buffers


def read_response_header(frame: memoryview, flexible: bool) -> tuple[int, int]:
    """(correlation id, position of the message)."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = 4
        if flexible:
            tags = frame[position]
            position += 1
            if tags:
                position, _ = skip_tags(frame, position, tags, len(frame))
    except (LayoutError, IndexError) as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, position
