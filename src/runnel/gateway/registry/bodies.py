"""Bodies of requests, of which all together may take a limited amount of memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request

from runnel.gateway.http.problems import Problem
from runnel.gateway.registry.limits import BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_S, MEMBERS_BYTES_MAX
from runnel.registry.errors import RegistryError

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
ACCEPTED_TYPES = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "")


class Refused(RegistryError):
    """A request that does not reach the registry; its code is an HTTP status."""


class Bodies:
    """The bodies that are received or in use."""

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[Any]:
        """The JSON of a request, which counts until the end of the block; None if it has none."""
        if request.method in ("GET", "HEAD", "DELETE"):
            yield None
            return
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in ACCEPTED_TYPES:
            raise Refused(415, f"HTTP 415 Unsupported Media Type; send {MEDIA_TYPE} or application/json")
        data = bytearray()
        try:
            await self._receive(request, data)
            yield _parsed(data)
        finally:
            self._bytes -= len(data)

    async def _receive(self, request: Request, data: bytearray) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    data += part
                    self._bytes += len(part)
                    if len(data) > BODY_BYTES_MAX:
                        raise Refused(413, f"the body has more than {BODY_BYTES_MAX} bytes")
                    if self._bytes > self._bytes_max:
                        raise Problem(503, "too many large requests are in flight")
        except TimeoutError:
            raise Refused(408, f"the body was not received within {BODY_S:g} s") from None


def _parsed(data: bytearray) -> Any:
    if len(data) > MEMBERS_BYTES_MAX:
        _check_members(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None


def _check_members(data: bytearray) -> None:
    """Of a large body, the text of the schema is what is large; the others are skipped, not decoded."""
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "the body is not a JSON object") from None
    schema = bytes(members.get("schema", b""))
    text_bytes = len(schema) if schema.startswith(b'"') else 0
    if len(data) - text_bytes > MEMBERS_BYTES_MAX:
        raise Refused(413, f"the body has more than {MEMBERS_BYTES_MAX} bytes beside the text of the schema")
