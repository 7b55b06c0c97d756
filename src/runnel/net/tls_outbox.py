"""The send queue of a TLS connection: all that is sent passes through its endpoint.

    parts ─► sealed, up to 64 KB at a time ─► send
    file slices ─► read ─┘

`sendfile` does not appear here: it would send clear text.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from runnel.net.file_sender import FileSender, is_writable_soon
from runnel.net.outbox import Outbox
from runnel.ports.disk import FileSlice
from runnel.ports.service import Parts
from runnel.tls.endpoint import TlsEndpoint

SEAL_BYTES = 64 * 1024
"""How much is encrypted at a time: the memory that the endpoint keeps, besides the parts."""


class TlsOutbox(Outbox):
    """Responses to be sent on a TLS connection, in order; never blocks.

    While it is away, a thread uses the endpoint: nothing else may.
    """

    __slots__ = ("_endpoint", "_sealed")

    def __init__(
        self,
        connected: socket.socket,
        sender: FileSender,
        on_back: Callable[[OSError | None], None],
        endpoint: TlsEndpoint,
    ) -> None:
        super().__init__(connected, sender, on_back)
        self._endpoint = endpoint
        self._sealed = memoryview(b"")
        """Encrypted and not sent yet."""

    @property
    def is_empty(self) -> bool:
        return not self._parts and not self._sealed

    def send(self, parts: Parts, may_share: bool) -> None:
        """Send as much as the socket accepts, keep the rest. Raises OSError if the connection is broken."""
        for part in parts:
            self._keep(part)
        self.push(may_share)

    def push(self, may_share: bool) -> None:
        """Continue to send, messages of the endpoint included. Raises OSError if the connection is broken."""
        if self.is_away:
            return
        try:
            self._send_sealed()
            while self._parts:
                first = self._parts[0]
                if type(first) is FileSlice:
                    if self._hand_over(first, may_share):
                        return
                    self._endpoint.seal(_read_some(first))
                    if first.length == 0:
                        self._parts.popleft()
                else:
                    self._seal_buffers()
                self._send_sealed()
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the socket, as soon as the thread has released it."""
        if not self.is_away:
            if self.is_empty:
                self._endpoint.close()
                with suppress(OSError):
                    self._send_sealed()
            self._sealed = memoryview(b"")
        super().close()

    def _seal_buffers(self) -> None:
        parts = self._parts
        buffers: list[bytes | bytearray | memoryview] = []
        room = SEAL_BYTES
        while room and parts and not isinstance(parts[0], FileSlice):
            part = parts.popleft()
            assert not isinstance(part, FileSlice)
            if len(part) > room:
                view = memoryview(part)
                parts.appendleft(view[room:])
                part = view[:room]
            buffers.append(part)
            room -= len(part)
        self._endpoint.seal(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        self.memory_bytes -= SEAL_BYTES - room

    def _send_sealed(self) -> None:
        """Send what is encrypted. Raises BlockingIOError if the socket does not accept all of it."""
        while True:
            if not self._sealed:
                self._sealed = memoryview(self._endpoint.output())
                if not self._sealed:
                    return
            sent = self._socket.send(self._sealed)
            self._sealed = self._sealed[sent:]

    def _send_whole(self, piece: FileSlice) -> None:
        while True:
            try:
                self._send_sealed()
            except BlockingIOError:
                if not is_writable_soon(self._fd):
                    return
                continue
            if not piece.length:
                return
            self._endpoint.seal(_read_some(piece))


def _read_some(piece: FileSlice) -> bytes:
    data = os.pread(piece.file.fileno(), min(piece.length, SEAL_BYTES), piece.position)
    if not data:
        # The length of the response was already sent, so an error response is impossible.
        raise ConnectionAbortedError("a segment file is shorter than the slice to send")
    piece.position += len(data)
    piece.length -= len(data)
    return data
