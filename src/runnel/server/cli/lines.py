"""Standard input, line by line, without blocking the event loop."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator

READ_BYTES = 64 * 1024
READ_AHEAD_CHUNKS = 4


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line as soon as it is complete, so that `tail -f … | runnel produce` sends without delay."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    slots = threading.Semaphore(READ_AHEAD_CHUNKS)
    loop = asyncio.get_running_loop()
    source = sys.stdin.fileno()

    def read_forever() -> None:
        # sys.stdin is not used: a blocked reader thread would hold its lock at interpreter exit.
        while True:
            slots.acquire()
            chunk = os.read(source, READ_BYTES)
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                # The loop is closed, for example after an invalid line.
                return
            if not chunk:
                return

    threading.Thread(target=read_forever, name="standard input", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        slots.release()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")
