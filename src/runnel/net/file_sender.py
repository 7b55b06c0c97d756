"""A second pair of hands for large answers: sendfile lets go of the GIL, so two processors can send at once.

The event loop sends by itself whatever the thread has no time for: neither waits for the other.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue

from runnel.ports.disk import FileSlice

SHARED_BYTES_MIN = 256 * 1024
"""Below this, asking the thread and hearing back costs more than sending."""

PATIENCE_MS = 5
"""How long the thread waits for a peer that takes no more, before the event loop does that waiting."""

Back = Callable[[OSError | None], None]
"""Told on the event loop that the thread is done with a piece, sent or not, and what was wrong."""


class FileSender:
    """One thread that sends stretches of files into sockets; it starts when it is first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[int, FileSlice, Back] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._is_closed = False

    def offer(self, descriptor: int, piece: FileSlice, back: Back) -> bool:
        """Let the thread send this piece, if it has nothing else to do.

        Until `back` is told, socket and piece are the thread's; then the piece is what is left to send.
        """
        if self._is_busy or self._is_closed:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
            self._thread.start()
        self._is_busy = True
        self._jobs.put((descriptor, piece, back))
        return True

    def close(self) -> None:
        """Take nothing more, and wait for the thread to end."""
        self._is_closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            descriptor, piece, back = job
            failure: OSError | None = None
            try:
                _send(descriptor, piece)
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._back, back, failure)
            except RuntimeError:
                # The loop is closed: nobody is there to be told.
                if not self._loop.is_closed():
                    raise

    def _back(self, back: Back, failure: OSError | None) -> None:
        self._is_busy = False
        back(failure)


def send_some(descriptor: int, piece: FileSlice) -> None:
    """Send what the socket takes now. Raises OSError, BlockingIOError if it takes nothing."""
    sent = os.sendfile(descriptor, piece.file.fileno(), piece.position, piece.length)
    if sent == 0:
        # The answer's length is already on its way, so there is no way to say it in words.
        raise ConnectionAbortedError("a segment file ended before the slice that was promised")
    piece.position += sent
    piece.length -= sent


def _send(descriptor: int, piece: FileSlice) -> None:
    """Send all of it, unless the peer takes nothing for a while."""
    writable: select.poll | None = None
    while piece.length:
        try:
            send_some(descriptor, piece)
        except BlockingIOError:
            if writable is None:
                writable = select.poll()
                writable.register(descriptor, select.POLLOUT)
            if not writable.poll(PATIENCE_MS):
                return
