"""Standard input, line by line, without holding up the event loop."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator

READ_BYTES = 64 * 1024
CHUNKS_AHEAD = 4


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line as soon as it is there, so that `tail -f … | runnel produce` never waits for the next."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)
    loop = asyncio.get_running_loop()
    source = sys.stdin.fileno()

    def read_forever() -> None:
        # Not through sys.stdin: at the end of the program its lock would be held by a thread nobody can wake.
        while True:
            chunk = os.read(source, READ_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return
            if not chunk:
                return

    threading.Thread(target=read_forever, name="standard input", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")
