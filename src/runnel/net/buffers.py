"""Receive memory: pooled, accounted, and limited for all connections together."""

import mmap
from collections import deque
from collections.abc import Callable

POOLED_BYTES_MAX = 4 * 1024 * 1024
"""Buffers up to this size are reused. Larger ones are mapped: pages are allocated as bytes arrive, so that a
size that is only stated takes no memory, and nothing is copied."""

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Free buffers kept for reuse: page faults of new memory cost more than the copy."""


class LargeFrame:
    """A frame that is received into its own buffer."""

    __slots__ = ("_view", "buffer", "received", "size_bytes")

    def __init__(self, size_bytes: int, buffer: bytearray | mmap.mmap) -> None:
        self.size_bytes = size_bytes
        self.received = 0
        self.buffer = buffer
        self._view = memoryview(buffer)

    @property
    def is_complete(self) -> bool:
        return self.received == self.size_bytes

    @property
    def frame(self) -> memoryview:
        """The whole frame, once complete."""
        return self._view[: self.size_bytes]

    def room(self) -> memoryview:
        """The part of the buffer to receive into."""
        return self._view[self.received : self.size_bytes]

    def add(self, piece: memoryview) -> None:
        """Append bytes that were received into another buffer."""
        self.room()[: len(piece)] = piece
        self.received += len(piece)


class ReceiveMemory:
    """Memory of incomplete large frames; connections wait when the limit is reached."""

    def __init__(self, bytes_max: int) -> None:
        self.reserved_bytes = 0
        self._bytes_max = bytes_max
        self._free: dict[int, list[bytearray]] = {}
        self._free_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size_bytes: int) -> LargeFrame | None:
        """Memory for one frame, or None if the limit is reached: then use `when_free`."""
        # One frame is always allowed: a limit below the largest frame must not block a connection forever.
        if self.reserved_bytes and self.reserved_bytes + size_bytes > self._bytes_max:
            return None
        self.reserved_bytes += size_bytes
        capacity = _capacity(size_bytes)
        kept = self._free.get(capacity)
        if kept:
            self._free_bytes -= capacity
            return LargeFrame(size_bytes, kept.pop())
        return LargeFrame(size_bytes, new_buffer(capacity))

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once, when memory is released."""
        self._waiting.append(callback)

    def give_back(self, frame: LargeFrame) -> None:
        """Release the memory of a frame."""
        self.reserved_bytes -= frame.size_bytes
        buffer = frame.buffer
        if isinstance(buffer, bytearray) and self._free_bytes + len(buffer) <= KEPT_BYTES_MAX:
            self._free_bytes += len(buffer)
            self._free.setdefault(len(buffer), []).append(buffer)
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for callback in waiting:
                callback()


def new_buffer(size_bytes: int) -> bytearray | mmap.mmap:
    """Memory for this many bytes."""
    if size_bytes <= POOLED_BYTES_MAX:
        return bytearray(size_bytes)
    return mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _capacity(size_bytes: int) -> int:
    """Powers of two, so that buffers of similar frames are interchangeable; exact if it is not reused."""
    if size_bytes > POOLED_BYTES_MAX:
        return size_bytes
    return 1 << max(17, (size_bytes - 1).bit_length())
