"""Threads that send large responses: sendfile releases the GIL, so that several processors can send at once.

Data that is not in the page cache is always sent by a thread, since reading it blocks. Of data that is, the
event loop sends what the threads have no time for: neither waits for the other. How a slice is sent is up to
its connection: with TLS it is read and encrypted, as `sendfile` would send it in clear text.
"""

import asyncio
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from runnel.ports.disk import FileSlice

SHARED_BYTES_MIN = 256 * 1024
"""Below this, handing a slice to a thread and back costs more than sending it."""

THREADS_MAX = 4
"""Slices that are read from the disk at the same time; more wait in a queue."""

PROBE_STEP_BYTES = 128 * 1024
"""One page is probed in this many bytes: the kernel reads ahead in units of this size."""

SEND_TIMEOUT_MS = 5
"""How long a thread waits for a peer that takes no more, before the event loop does that waiting."""

Send = Callable[[FileSlice], None]
"""Sends a slice, in a thread, unless the peer is slow; the slice is what is left. Raises OSError."""

Back = Callable[[OSError | None], None]
"""Called on the event loop when a thread is done with a slice, sent or not, with what went wrong."""


@dataclass(slots=True)
class Job:
    """A slice that a thread sends. Until `back` is called, socket and slice are the thread's."""

    send: Send
    piece: FileSlice
    back: Back
    is_cold: bool


class FileSender:
    """Threads that send slices of files to sockets; they start when they are first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._in_flight = 0
        self._is_sharing = False
        """A thread sends a slice that the event loop could have sent."""
        self._is_closed = False

    def offer(self, send: Send, piece: FileSlice, back: Back) -> bool:
        """Let a thread send a slice that is in the page cache, if none does so already.

        When `back` is called, the slice is what is left to send.
        """
        if self._is_sharing or self._is_closed:
            return False
        self._is_sharing = True
        self._begin(Job(send, piece, back, is_cold=False))
        return True

    def send_cold(self, send: Send, piece: FileSlice, back: Back) -> bool:
        """Let a thread send a slice that has to be read from the disk; False only when closed."""
        if self._is_closed:
            return False
        self._begin(Job(send, piece, back, is_cold=True))
        return True

    def close(self) -> None:
        """Take nothing more, and wait for the threads to end."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self, job: Job) -> None:
        self._in_flight += 1
        if self._in_flight > len(self._threads) and len(self._threads) < THREADS_MAX:
            thread = threading.Thread(target=self._run, name="sender", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            failure: OSError | None = None
            try:
                job.send(job.piece)
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._done, job, failure)
            except RuntimeError:
                # The loop is closed: no caller is left to be informed.
                if not self._loop.is_closed():
                    raise

    def _done(self, job: Job, failure: OSError | None) -> None:
        self._in_flight -= 1
        if not job.is_cold:
            self._is_sharing = False
        job.back(failure)


def is_cold(piece: FileSlice) -> bool:
    """Would sending this slice wait for the disk, as far as a sample of its pages can tell?"""
    last = piece.position + piece.length - 1
    is_resident = piece.file.is_resident
    if not is_resident(last, 1):
        return True
    return not all(is_resident(position, 1) for position in range(piece.position, last, PROBE_STEP_BYTES))


def send_some(descriptor: int, piece: FileSlice) -> None:
    """Send as much as the socket accepts. Raises OSError, BlockingIOError if it accepts nothing."""
    sent = os.sendfile(descriptor, piece.file.fileno(), piece.position, piece.length)
    if sent == 0:
        # The length of the response was already sent, so an error response is impossible.
        raise ConnectionAbortedError("a segment file is shorter than the slice to send")
    piece.position += sent
    piece.length -= sent


def send_whole(descriptor: int, piece: FileSlice) -> None:
    """Send the whole slice, unless the peer is slow."""
    while piece.length:
        try:
            send_some(descriptor, piece)
        except BlockingIOError:
            if not is_writable_soon(descriptor):
                return


def is_writable_soon(descriptor: int) -> bool:
    """Wait for a slow peer for a moment."""
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    return bool(writable.poll(SEND_TIMEOUT_MS))
