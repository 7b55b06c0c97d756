"""What is still to be sent on one socket: buffers by sendmsg, stretches of files by sendfile."""

import os
import socket
from collections import deque

from runnel.ports.disk import FileSlice
from runnel.ports.service import Parts

BUFFERS_PER_CALL = 512
"""Half of the kernel's IOV_MAX."""


class Outbox:
    """Answers on their way out of one socket, in order; never blocks."""

    __slots__ = ("_fd", "_parts", "_socket", "memory_bytes")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._fd = connected.fileno()
        self._parts: deque[bytes | bytearray | memoryview | FileSlice] = deque()
        self.memory_bytes = 0
        """Bytes held in memory until the peer takes them; stretches of files hold none."""

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def send(self, parts: Parts) -> None:
        """Send what the socket takes now, keep the rest. Raises OSError when the connection is broken."""
        if len(parts) == 1 and not self._parts and type(parts[0]) is bytes:
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
        self.push()

    def push(self) -> None:
        """Send on. Raises OSError when the connection is broken."""
        parts = self._parts
        try:
            while parts:
                first = parts[0]
                if type(first) is FileSlice:
                    self._send_file(first)
                else:
                    self._send_buffers()
        except BlockingIOError:
            return

    def _keep(self, part: bytes | bytearray | memoryview | FileSlice) -> None:
        self._parts.append(part)
        if not isinstance(part, FileSlice):
            self.memory_bytes += len(part)

    def _send_buffers(self) -> None:
        buffers: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in self._parts:
            if isinstance(part, FileSlice):
                # The file's bytes follow at once: let them share the packet.
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

    def _send_file(self, piece: FileSlice) -> None:
        sent = os.sendfile(self._fd, piece.file.fileno(), piece.position, piece.length)
        if sent == 0:
            # The answer's length is already on its way, so there is no way to say it in words.
            raise ConnectionAbortedError("a segment file ended before the slice that was promised")
        piece.position += sent
        piece.length -= sent
        if piece.length == 0:
            self._parts.popleft()
