"""GET requests to the admin listeners of brokers: `/metrics` and `/lag`, where a broker has one."""

import asyncio

from runnel.client.cluster import parse_addresses

TIMEOUT_S = 3.0
BODY_BYTES_MAX = 64 * 1024 * 1024
_LOOPBACK = ("127.", "localhost", "::1")


class AdminFailed(Exception):
    """The admin listener did not answer as expected."""


async def get(host: str, port: int, target: str) -> bytes:
    """The body of a response with status 200."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _get(host, port, target)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
        raise AdminFailed(f"{host}:{port}{target}: {error}") from error


async def _get(host: str, port: int, target: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        shown = f"[{host}]" if ":" in host else host
        request = f"GET {target} HTTP/1.1\r\nHost: {shown}:{port}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("ascii"))
        status = await reader.readline()
        words = status.split()
        if len(words) < 2 or words[1] != b"200":
            raise AdminFailed(f"{host}:{port}{target}: {status.decode('latin-1').strip() or 'no response'}")
        headers = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return await _body(reader, headers)
    finally:
        writer.close()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    parts, size = [], 0
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while length := int((await reader.readline()).split(b";")[0], 16):
            size = _bounded(size + length)
            parts.append(await reader.readexactly(length))
            await reader.readline()
    elif "content-length" in headers:
        parts.append(await reader.readexactly(_bounded(int(headers["content-length"]))))
    else:
        while part := await reader.read(65536):
            size = _bounded(size + len(part))
            parts.append(part)
    return b"".join(parts)


def _bounded(size: int) -> int:
    if size > BODY_BYTES_MAX:
        raise AdminFailed(f"more than {BODY_BYTES_MAX} bytes")
    return size


def admin_address(listed: str | None, broker_host: str) -> tuple[str, int] | None:
    """The reachable address of a broker's `admin.listeners`; None if there is none.

    A listener on the loopback of another machine would be mistaken for one of this machine.
    """
    first = (listed or "").split(",")[0].strip().rpartition("://")[2]
    if not first or first == "off":
        return None
    try:
        [(host, port)] = parse_addresses(first)
    except ValueError:
        return None
    if host in ("0.0.0.0", "::", ""):
        return broker_host, port
    if host.startswith(_LOOPBACK) and not broker_host.startswith(_LOOPBACK):
        return None
    return host, port
