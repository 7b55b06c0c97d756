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
from runnel.tls.endpoint import HANDSHAKE_RECORD, TlsEndpoint
from runnel.tls.failures import tls_failure
from runnel.tls.server import NotAuthenticated

if TYPE_CHECKING:
    from runnel.net.listener import Listener

SEALED_BYTES = 64 * 1024
"""How much is received and decrypted at a time: the endpoint keeps memory for the most that it ever held."""

RECEIVES_MAX = RECEIVE_BYTES // SEALED_BYTES
"""Receives in a row, before other connections are served."""

CLEAR_TEXT = "it does not use TLS, which this listener requires (security.protocol of the client)"


class TlsConnection(Connection):
    """A connection whose bytes are encrypted."""

    __slots__ = ("_endpoint", "_has_begun", "_is_flowing")

    def __init__(self, connected: socket.socket, session: Session, listener: "Listener") -> None:
        assert listener.tls is not None
        self._endpoint = TlsEndpoint(listener.tls.context)
        self._has_begun = False
        self._is_flowing = False
        """The last receive filled its buffer: there is probably more."""
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
        if not self._take_in():
            return
        buffer = self._listener.buffer
        start = end = len(self._rest)
        for attempt in range(RECEIVES_MAX):
            if attempt and not self._take_more():
                break
            # What is taken in has to be read: the event loop does not know of it.
            end += self._read_into(buffer[end:])
        if end > start and not self.is_closed:
            buffer[:start] = self._rest
            self._rest = b""
            self._serve(buffer, end)
        self._read_on("")

    def _receive_large(self, large: LargeFrame) -> None:
        if not self._take_in():
            return
        for attempt in range(RECEIVES_MAX):
            if large.is_complete or (attempt and not self._take_more()):
                break
            large.received += self._read_into(large.room())
        if large.is_complete and not self.is_closed:
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

    def _take_in(self) -> bool:
        """Receive, unless there is something left to read; whether requests can be read."""
        endpoint = self._endpoint
        if endpoint.has_more:
            return True
        if not endpoint.is_established and not self._listener.may_shake_hands():
            # The socket is readable in the next iteration, too.
            return False
        sealed = self._listener.sealed
        self._is_flowing = False
        received = self._socket.recv_into(sealed)
        if not received:
            if not endpoint.is_established:
                self.close("closed during the TLS handshake")
            endpoint.is_ended = True
            return endpoint.is_established
        self._is_flowing = received == len(sealed)
        endpoint.received(sealed[:received])
        return endpoint.is_established or self._shake_hands(sealed[0])

    def _take_more(self) -> bool:
        """Receive again; whether there is something to read."""
        if self.is_closed or not self._is_flowing or self._endpoint.has_more:
            return False
        if self._outbox.is_away:
            # Since the last read, which had something to send. The socket stays readable.
            return False
        try:
            return self._take_in() and not self._endpoint.is_ended
        except BlockingIOError:
            return False

    def _read_into(self, room: memoryview) -> int:
        try:
            received = self._endpoint.read_into(room)
        except ssl.SSLError as error:
            self._push()
            self.close(tls_failure(error), warn=True)
            return 0
        if self._endpoint.has_output:
            # The peer has asked for new keys.
            self._push()
        return received

    def _shake_hands(self, first_byte: int) -> bool:
        """Continue the handshake; whether the connection is established."""
        listener, endpoint = self._listener, self._endpoint
        assert listener.tls is not None
        if first_byte != HANDSHAKE_RECORD and not self._has_begun:
            self.close(CLEAR_TEXT, warn=True)
            return False
        self._has_begun = True
        try:
            is_established = endpoint.handshake()
        except ssl.SSLError as error:
            self._push()
            self.close(tls_failure(error), warn=True)
            return False
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
