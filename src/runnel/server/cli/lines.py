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
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)
    loop = asyncio.get_running_loop()
    source = sys.stdin.fileno()

    def read_forever() -> None:
        # Not through sys.stdin: at the end of the program its lock would be held by a thread nobody can wake.
        while True:
            room.acquire()
            chunk = os.read(source, READ_BYTES)
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                # The loop is closed: nobody listens any more, for example after a line that made no sense.
                return
            if not chunk:
                return

    threading.Thread(target=read_forever, name="standard input", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")
