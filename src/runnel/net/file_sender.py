"""A thread for large responses: sendfile releases the GIL, so that two cores can send concurrently.

The event loop sends what the thread has no capacity for: neither waits for the other.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue

from runnel.ports.disk import FileSlice

SHARED_BYTES_MIN = 256 * 1024
"""Below this size the hand-over costs more than sending."""

PATIENCE_MS = 5
"""How long the thread waits for a slow peer before it returns the slice to the event loop."""

Back = Callable[[OSError | None], None]
"""Called on the event loop when the thread has finished with a slice, with the error if any."""


class FileSender:
    """A thread that sends file slices to sockets; started on first use."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[int, FileSlice, Back] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_busy = False
        self._is_closed = False

    def offer(self, descriptor: int, piece: FileSlice, back: Back) -> bool:
        """Let the thread send this slice, if it is idle.

        Until `back` is called, the thread owns socket and slice; afterwards the slice is the unsent rest.
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
        """Stop, and wait for the thread to end."""
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
                # The event loop is closed.
                if not self._loop.is_closed():
                    raise

    def _back(self, back: Back, failure: OSError | None) -> None:
        self._is_busy = False
        back(failure)


def send_some(descriptor: int, piece: FileSlice) -> None:
    """Send as much as the socket accepts. Raises OSError, BlockingIOError if it accepts nothing."""
    sent = os.sendfile(descriptor, piece.file.fileno(), piece.position, piece.length)
    if sent == 0:
        # The length of the response was already sent, so an error response is impossible.
        raise ConnectionAbortedError("a segment file is shorter than the slice to send")
    piece.position += sent
    piece.length -= sent


def _send(descriptor: int, piece: FileSlice) -> None:
    """Send the whole slice, unless the peer is slow."""
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
