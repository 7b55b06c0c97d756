"""Standard input, line by line, without blocking the event loop."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator

from runnel.server.cli.output import CommandError

READ_BYTES = 64 * 1024
READ_AHEAD_CHUNKS = 4


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line as soon as it is complete, so that `tail -f … | runnel produce` sends without delay."""
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    slots = threading.Semaphore(READ_AHEAD_CHUNKS)
    loop = asyncio.get_running_loop()
    # The thread may outlive its reader, for example after an invalid line: it owns its descriptor.
    # sys.stdin is not used: a blocked reader thread would hold its lock at interpreter exit.
    source = os.dup(sys.stdin.fileno())

    def read_forever() -> None:
        with open(source, "rb", buffering=0) as unbuffered:
            while True:
                slots.acquire()
                try:
                    chunk: bytes | OSError = unbuffered.read(READ_BYTES) or b""
                except OSError as error:
                    chunk = error
                try:
                    loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                except RuntimeError:
                    # The event loop is closed.
                    return
                if not chunk or isinstance(chunk, OSError):
                    return

    threading.Thread(target=read_forever, name="standard input", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise CommandError(f"standard input cannot be read: {chunk.strerror}") from chunk
        slots.release()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")
