"""The send queue of a socket: buffers by sendmsg, file slices by sendfile."""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from runnel.net.file_sender import SHARED_BYTES_MIN, FileSender, is_cold, send_some, send_whole
from runnel.ports.disk import FileSlice
from runnel.ports.service import Parts

BUFFERS_PER_CALL = 512
"""Half of the kernel's IOV_MAX."""


class Outbox:
    """Responses to be sent on a socket, in order; never blocks."""

    __slots__ = (
        "_closes",
        "_fd",
        "_on_back",
        "_parts",
        "_sender",
        "_socket",
        "_warm",
        "is_away",
        "memory_bytes",
    )

    def __init__(
        self, connected: socket.socket, sender: FileSender, on_back: Callable[[OSError | None], None]
    ) -> None:
        self._socket = connected
        self._fd = connected.fileno()
        self._sender = sender
        self._on_back = on_back
        self._closes = False
        self._warm: FileSlice | None = None
        """The slice being sent, once it was found to be in the page cache."""
        self.is_away = False
        """The thread is sending the first part and owns the socket."""
        self._parts: deque[bytes | bytearray | memoryview | FileSlice] = deque()
        self.memory_bytes = 0
        """Unsent bytes in memory; file slices count as zero."""

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def send(self, parts: Parts, may_share: bool) -> None:
        """Send as much as the socket accepts, keep the rest. Raises OSError if the connection is broken.

        `may_share`: the thread may send, because the event loop has other responses to send.
        """
        if len(parts) == 1 and not self._parts and not self.is_away and type(parts[0]) is bytes:
            data = parts[0]
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            if sent != len(data):
                self._keep(memoryview(data)[sent:])
            return
        for part in parts:
            self._keep(part)
        self.push(may_share)

    def close(self) -> None:
        """Close the socket, as soon as the thread has released it."""
        self._parts.clear()
        # Without a reference to its connection, both are freed at once (`server/process.py`).
        self._on_back = _nothing
        if not self.is_away:
            self._socket.close()
            return
        self._closes = True
        with suppress(OSError):
            # Wakes the thread; the descriptor stays open so that its number is not reused.
            self._socket.shutdown(socket.SHUT_RDWR)

    def push(self, may_share: bool) -> None:
        """Continue to send. Raises OSError if the connection is broken."""
        if self.is_away:
            return
        parts = self._parts
        try:
            while parts:
                first = parts[0]
                if type(first) is FileSlice:
                    if self._hand_over(first, may_share):
                        return
                    send_some(self._fd, first)
                    if first.length == 0:
                        parts.popleft()
                else:
                    self._send_buffers()
        except BlockingIOError:
            return

    def _hand_over(self, piece: FileSlice, may_share: bool) -> bool:
        """Whether a thread sends this slice: it is cold, or the event loop has others to serve."""
        if may_share and piece.length >= SHARED_BYTES_MIN:
            self.is_away = self._sender.offer(self._send_whole, piece, self._back)
        if not self.is_away and piece is not self._warm:
            if is_cold(piece):
                self.is_away = self._sender.send_cold(self._send_whole, piece, self._back)
            else:
                # It stays in the page cache for as long as it takes to send it.
                self._warm = piece
        return self.is_away

    def _send_whole(self, piece: FileSlice) -> None:
        """Send a slice, in a thread."""
        send_whole(self._fd, piece)

    def _keep(self, part: bytes | bytearray | memoryview | FileSlice) -> None:
        self._parts.append(part)
        if not isinstance(part, FileSlice):
            self.memory_bytes += len(part)

    def _send_buffers(self) -> None:
        buffers: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in self._parts:
            if isinstance(part, FileSlice):
                # File bytes follow immediately: let them share the packet.
                flags = socket.MSG_MORE
                break
            if len(buffers) == BUFFERS_PER_CALL:
                break
            buffers.append(part)
        sent = self._socket.sendmsg(buffers, (), flags)
        self.memory_bytes -= sent
        parts = self._parts
        for buffer in buffers:
            size_bytes = len(buffer)
            if sent < size_bytes:
                parts[0] = memoryview(buffer)[sent:]
                return
            sent -= size_bytes
            parts.popleft()

    def _back(self, failure: OSError | None) -> None:
        self.is_away = False
        if self._closes:
            self._socket.close()
            return
        first = self._parts[0]
        if isinstance(first, FileSlice) and first.length == 0:
            self._parts.popleft()
        self._on_back(failure)


def _nothing(failure: OSError | None) -> None:
    """The connection is closed."""
