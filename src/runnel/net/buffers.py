"""Receive memory: pooled, accounted, and limited for all connections together."""

from collections import deque
from collections.abc import Callable

FIRST_BYTES_MAX = 4 * 1024 * 1024
"""Initial buffer of a large frame; it grows as bytes arrive."""

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Free buffers kept for reuse: page faults of new memory cost more than the copy."""


class LargeFrame:
    """A frame that is received into its own buffer."""

    __slots__ = ("_view", "buffer", "received", "size_bytes")

    def __init__(self, size_bytes: int, buffer: bytearray) -> None:
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
        if self.received == len(self.buffer):
            self._grow()
        return self._view[self.received : self.size_bytes]

    def add(self, piece: memoryview) -> None:
        """Append bytes that were received into another buffer."""
        self.room()[: len(piece)] = piece
        self.received += len(piece)

    def _grow(self) -> None:
        # Doubling copies each byte about once, and only for frames beyond FIRST_BYTES_MAX.
        bigger = bytearray(min(self.size_bytes, 2 * len(self.buffer)))
        bigger[: self.received] = self.buffer
        self.buffer = bigger
        self._view = memoryview(bigger)


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
        capacity = min(_capacity(size_bytes), FIRST_BYTES_MAX)
        kept = self._free.get(capacity)
        if kept:
            self._free_bytes -= capacity
            return LargeFrame(size_bytes, kept.pop())
        return LargeFrame(size_bytes, bytearray(capacity))

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once, when memory is released."""
        self._waiting.append(callback)

    def give_back(self, frame: LargeFrame) -> None:
        """Release the memory of a frame."""
        self.reserved_bytes -= frame.size_bytes
        capacity = len(frame.buffer)
        if capacity <= FIRST_BYTES_MAX and self._free_bytes + capacity <= KEPT_BYTES_MAX:
            self._free_bytes += capacity
            self._free.setdefault(capacity, []).append(frame.buffer)
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for callback in waiting:
                callback()


def _capacity(size_bytes: int) -> int:
    """Powers of two, so that buffers of similar frames are interchangeable."""
    return 1 << max(17, (size_bytes - 1).bit_length())
