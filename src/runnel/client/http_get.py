"""A bounded HTTP GET on the event loop, for the admin listeners of brokers."""

import asyncio

HEADERS_BYTES_MAX = 16 * 1024
OK = 200


class GetFailed(Exception):
    """The address did not answer, or not as expected."""


async def get(host: str, port: int, path: str, *, timeout_s: float, body_bytes_max: int) -> bytes:
    """The body of a response with status 200; GetFailed otherwise, and if it is too large or too late."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=HEADERS_BYTES_MAX)
            try:
                return await _exchange(reader, writer, f"{host}:{port}", path, body_bytes_max)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise GetFailed(f"no answer within {timeout_s:g} s") from None
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise GetFailed(str(error) or type(error).__name__) from None


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str, body_bytes_max: int
) -> bytes:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: text/plain\r\n\r\n"
    writer.write(request.encode("ascii"))
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = head[0].split(" ", 2)
    if len(status) < 2 or not status[0].startswith("HTTP/1.") or status[1] != str(OK):
        raise GetFailed(f"the answer to {path} is {head[0][:80]!r}")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunked(reader, body_bytes_max)
    length = headers.get("content-length")
    if length is not None:
        _check_size(int(length), body_bytes_max)
        return await reader.readexactly(int(length))
    body = bytearray()
    while piece := await reader.read(65536):
        body += piece
        _check_size(len(body), body_bytes_max)
    return bytes(body)


async def _chunked(reader: asyncio.StreamReader, body_bytes_max: int) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if not size:
            return bytes(body)
        _check_size(len(body) + size, body_bytes_max)
        body += await reader.readexactly(size)
        await reader.readexactly(2)


def _check_size(size: int, limit: int) -> None:
    if not 0 <= size <= limit:
        raise GetFailed(f"the answer is larger than {limit} bytes")
