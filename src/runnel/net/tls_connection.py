"""A client connection with TLS.

    handshake ─► established: as any connection, but bytes pass through the endpoint in both directions
        └─► failed: an alert states the reason to the client, and a warning is logged

The endpoint may hold clear bytes that the event loop cannot see: reading goes on until there are none. While
a thread sends a large slice the endpoint is its own, and nothing is read.
"""

import socket
import ssl
from typing import TYPE_CHECKING

from runnel.net.buffers import LargeFrame
from runnel.net.connection import RECEIVE_BYTES, Connection
from runnel.net.tls_outbox import TlsOutbox
from runnel.ports.service import Session
from runnel.tls.endpoint import HANDSHAKE_RECORD, SEALED_BYTES, TlsEndpoint
from runnel.tls.failures import tls_failure
from runnel.tls.server import NotAuthenticated

if TYPE_CHECKING:
    from runnel.net.listener import Listener

CLEAR_TEXT = "it does not use TLS, which this listener requires (security.protocol of the client)"


class TlsConnection(Connection):
    """A connection whose bytes are encrypted."""

    __slots__ = ("_endpoint", "_has_begun")

    def __init__(self, connected: socket.socket, session: Session, listener: "Listener") -> None:
        assert listener.tls is not None
        self._endpoint = TlsEndpoint(listener.tls.context)
        self._has_begun = False
        super().__init__(connected, session, listener)

    def _new_outbox(self, connected: socket.socket, listener: "Listener") -> TlsOutbox:
        return TlsOutbox(connected, listener.sender, self._sender_is_back, self._endpoint)

    def _is_full(self) -> bool:
        return self._outbox.is_away or super()._is_full()

    def _wait_or_close(self) -> None:
        if self._endpoint.has_more:
            # The socket may not become readable again.
            self._pause()
        else:
            super()._wait_or_close()

    def _receive(self) -> None:
        if self._is_stalled:
            super()._receive()
            # The peer may have closed its side, which the socket does not report.
            self._read_on("")
            return
        buffer = self._listener.buffer
        start = len(self._rest)
        read = self._read_into(buffer[start:], max(self._receive_bytes, SEALED_BYTES))
        if read:
            buffer[:start] = self._rest
            self._rest = b""
            self._serve(buffer, start + read)
        self._read_on("")

    def _receive_large(self, large: LargeFrame) -> None:
        room = large.room()
        # Little beyond its end, which the endpoint has to hold.
        large.received += self._read_into(room, len(room) + SEALED_BYTES)
        if large.is_complete:
            if large.size_bytes <= RECEIVE_BYTES:
                # Of such frames, one receive may contain several, which are served and written together.
                self._receive_bytes = RECEIVE_BYTES
            self._serve_large(large)
        self._read_on("closed during a request")

    def _resume(self) -> None:
        super()._resume()
        if self._endpoint.has_more:
            self._listener.loop.call_soon(self._continue)

    def _read_on(self, reason: str) -> None:
        """Read what else the endpoint has, after other connections; close if the peer has closed its side."""
        if self.is_closed:
            return
        if self._endpoint.has_more:
            self._listener.loop.call_soon(self._continue)
        elif self._endpoint.is_ended and not self._is_stalled:
            # After the responses to what was served now.
            self._listener.loop.call_soon(self.close, reason)

    def _continue(self) -> None:
        if self._endpoint.has_more and not (self.is_closed or self._is_paused or self._is_stalled):
            self.readable()

    def _read_into(self, room: memoryview, size_bytes: int) -> int:
        """Decrypt what the endpoint holds, and receive so many bytes; returns how many are clear."""
        endpoint = self._endpoint
        read = 0
        try:
            if endpoint.has_more:
                read = endpoint.read_into(room)
            if not endpoint.is_established:
                if self._shake_hands():
                    read = endpoint.read_into(room)
            elif not read or (size_bytes > SEALED_BYTES and not (endpoint.has_more or endpoint.is_ended)):
                read += self._receive_into(room[read:], size_bytes)
        except ssl.SSLError as error:
            self._push()
            self.close(tls_failure(error), warn=True)
        else:
            if endpoint.has_output:
                # Such as the refusal of a renegotiation.
                self._push()
        return 0 if self.is_closed else read

    def _receive_into(self, room: memoryview, size_bytes: int) -> int:
        """Receive and decrypt. Raises ssl.SSLError."""
        sealed = self._listener.sealed
        try:
            received = self._socket.recv_into(sealed[:size_bytes])
        except BlockingIOError:
            return 0
        if not received:
            self._endpoint.is_ended = True
        return self._endpoint.unseal(sealed[:received], room)

    def _shake_hands(self) -> bool:
        """Receive and continue the handshake; whether it is complete. Raises ssl.SSLError."""
        listener, endpoint = self._listener, self._endpoint
        assert listener.tls is not None
        if not listener.may_shake_hands():
            # The socket is readable in the next iteration, too.
            return False
        sealed = listener.sealed[:SEALED_BYTES]
        received = self._socket.recv_into(sealed)
        if not received:
            self.close("closed during the TLS handshake")
            return False
        if sealed[0] != HANDSHAKE_RECORD and not self._has_begun:
            self.close(CLEAR_TEXT, warn=True)
            return False
        self._has_begun = True
        endpoint.received(sealed[:received])
        is_established = endpoint.handshake()
        self._push()
        if not is_established or self.is_closed:
            return False
        listener.established(self)
        try:
            self.session.principal = listener.tls.principal_of(endpoint.peer_certificate)
        except NotAuthenticated as error:
            self.close(str(error), warn=True)
            return False
        return True

    def _push(self) -> None:
        """Send what the endpoint has to say."""
        try:
            self._outbox.push(may_share=False)
        except OSError as error:
            self.close(error.strerror or "connection lost")
        else:
            if not self.is_closed:
                self._watch_writing()
