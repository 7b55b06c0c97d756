"""Streams of server-sent events: the search through a topic, and its tail."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from runnel.client.chunk import Chunk, Message
from runnel.client.errors import ClientError
from runnel.client.offsets import end_offsets
from runnel.client.reader import Reader
from runnel.gateway.console.message_filter import Predicate
from runnel.gateway.console.message_reading import Positions, Source, cursor_text, matching, scan
from runnel.gateway.console.message_view import row_of
from runnel.gateway.console.messages import Browsing, range_of
from runnel.gateway.console.pages import Refused, Visit
from runnel.gateway.console.topic import find_topic
from runnel.gateway.turns import new_room

MATCHES_MAX = 200
"""A search pauses here; it is continued on request."""

STREAMS_MAX = 100
SEARCHES_AT_ONCE = 4
SEARCHES_OF_ONE = 2
"""Searches of one person; others find room for theirs."""
PROGRESS_S = 0.25
BEAT_S = 15.0
TAIL_ROWS_MAX = 50
TAIL_INTERVAL_S = 0.3
TAIL_BYTES = 1024 * 1024


def event(name: str, data: str) -> bytes:
    """One event; each line of its data has a prefix."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode()


async def search(visit: Visit) -> Response:
    """Search the whole topic, newest first."""
    browsing = Browsing(visit.query, await find_topic(visit))
    matches = browsing.read_filter().matches
    low, high = await range_of(visit, browsing)
    for partition, offset in browsing.cursor.items():
        if partition in high:
            high[partition] = min(high[partition], max(offset, low[partition]))

    async def events() -> AsyncGenerator[bytes]:
        own = visit.session.searches if visit.gateway.sessions.needs_login else 0
        if visit.gateway.searches >= SEARCHES_AT_ONCE or own >= SEARCHES_OF_ONE:
            yield event("failed", "too many searches at once: wait for another to end")
            return
        visit.gateway.searches += 1
        visit.session.searches += 1
        try:
            async for part in _search(visit, browsing, low, high, matches):
                yield part
        finally:
            visit.gateway.searches -= 1
            visit.session.searches -= 1

    return _stream(visit, events())


async def _search(
    visit: Visit, browsing: Browsing, low: Positions, high: Positions, matches: Predicate
) -> AsyncGenerator[bytes]:
    source = Source(visit.cluster, browsing.isolation)
    began_s = told_s = time.monotonic()
    count = 0
    if not any(high[each] > low[each] for each in high):
        yield event("progress", json.dumps({"done": 0, "total": 0, "matches": 0, "seconds": 0, "bytes": 0}))
    async for step in scan(source, low, high, matches):
        count += len(step.matches)
        if step.matches:
            yield event("rows", _rows(visit, browsing.topic.name, step.matches))
        now_s = time.monotonic()
        if now_s - told_s >= PROGRESS_S or step.matches or step.offsets_done == step.offsets_total:
            told_s = now_s
            progress = {
                "done": step.offsets_done,
                "total": step.offsets_total,
                "matches": count,
                "seconds": round(now_s - began_s, 1),
                "bytes": source.bytes_read,
            }
            yield event("progress", json.dumps(progress))
        if count >= MATCHES_MAX and step.offsets_done < step.offsets_total:
            yield event("paused", cursor_text(step.cursor))
            return
    yield event("end", "")


async def tail(visit: Visit) -> Response:
    """New messages as they arrive."""
    browsing = Browsing(visit.query, await find_topic(visit))
    matches = browsing.read_filter().matches
    partitions = browsing.partitions
    if not partitions:
        raise Refused("no partition has a leader", 503)
    ends = await end_offsets(visit.cluster, partitions, isolation=browsing.isolation)

    async def events() -> AsyncGenerator[bytes]:
        reader = Reader(
            visit.cluster,
            isolation=browsing.isolation,
            max_bytes=TAIL_BYTES,
            partition_max_bytes=TAIL_BYTES // 4,
            out_of_range="latest",
        )
        async with reader:
            await reader.assign(ends)
            yield event("ready", "")
            async for chunks in _batches(reader):
                shown, skipped = await _newest_of(chunks, matches)
                if shown:
                    yield event("rows", _rows(visit, browsing.topic.name, shown))
                if skipped:
                    yield event("skipped", str(skipped))
                if not chunks:
                    yield b": still here\n\n"

    return _stream(visit, events())


async def _batches(reader: Reader) -> AsyncIterator[list[Chunk]]:
    """What arrived in each interval; an empty list if nothing did for a while."""
    waiting: asyncio.Task[Chunk | None] | None = None
    try:
        while True:
            waiting = waiting or asyncio.create_task(reader.next_chunk())
            await asyncio.wait({waiting}, timeout=BEAT_S)
            chunks: list[Chunk] = []
            deadline_s = time.monotonic() + TAIL_INTERVAL_S
            while waiting is not None and waiting.done():
                chunk = waiting.result()
                if chunk is None:
                    return
                chunks.append(chunk)
                reader.consumed(chunk)
                waiting = None
                if (left_s := deadline_s - time.monotonic()) > 0 and len(chunks) < 16:
                    waiting = asyncio.create_task(reader.next_chunk())
                    await asyncio.wait({waiting}, timeout=left_s)
            yield chunks
    finally:
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, ClientError):
                await waiting


async def _newest_of(chunks: list[Chunk], matches: Predicate) -> tuple[list[Message], int]:
    found = await matching((message for chunk in chunks for message in chunk.messages(new_room())), matches)
    found.sort(key=lambda message: (-message.timestamp_ms, message.partition, -message.offset))
    return found[:TAIL_ROWS_MAX], max(0, len(found) - TAIL_ROWS_MAX)


def _rows(visit: Visit, topic: str, messages: list[Message]) -> str:
    return visit.render("message_rows.html", rows=[row_of(message) for message in messages], name=topic)


def _stream(visit: Visit, events: AsyncGenerator[bytes]) -> Response:
    """A response that ends with its reader, with the gateway, or with an error that is reported."""
    session, gateway = visit.session, visit.gateway
    if session.streams >= STREAMS_MAX:
        raise Refused("too many streams are open", 503)

    async def guarded() -> AsyncGenerator[bytes]:
        session.streams += 1
        try:
            yield b"retry: 3000\n\n"
            async for part in _until(gateway.is_stopping, events):
                yield part
        except ClientError as error:
            yield event("failed", str(error))
        finally:
            session.streams -= 1
            session.touch()

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(guarded(), media_type="text/event-stream", headers=headers)


async def _until(stop: asyncio.Event, events: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    stopping = asyncio.create_task(stop.wait())
    upcoming: asyncio.Task[bytes] | None = None
    try:
        while True:
            upcoming = asyncio.ensure_future(anext(events))
            await asyncio.wait({stopping, upcoming}, return_when=asyncio.FIRST_COMPLETED)
            if not upcoming.done():
                return
            try:
                part = upcoming.result()
            except StopAsyncIteration:
                return
            yield part
    finally:
        stopping.cancel()
        if upcoming is not None and not upcoming.done():
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
        await events.aclose()
